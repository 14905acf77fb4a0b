# SPDX-License-Identifier: Apache-2.0
"""Who a model or an adapter is, by content: names of folders and files say nothing about weights.

Two fine-tunes of one model have the same configuration, tensor names, shapes and file sizes, and
different KV. So an identity covers the configuration, every header, and a sample of the bytes of
every tensor: models.py says what exactly, sample.py what a sample cannot see. What cannot be
identified raises Unidentified and is not shared.

Standard library only; needs neither the extension nor a daemon. Any process, any thread.
"""

from kvpool.identity.adapters import adapter
from kvpool.identity.hub import locate
from kvpool.identity.models import model, only_configuration
from kvpool.identity.result import Identity, Unidentified

__all__ = ["Identity", "Unidentified", "adapter", "locate", "model", "only_configuration"]
