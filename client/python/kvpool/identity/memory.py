# SPDX-License-Identifier: Apache-2.0
"""What this process has identified already, so that asking again costs a few stat calls.

One per process, used from any thread. Nothing of it is kept anywhere else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from kvpool.identity.files import survey
from kvpool.identity.result import Identity

_KEPT_MAX = 256

_lock = threading.Lock()
_kept: OrderedDict[Hashable, Identity] = OrderedDict()


def _state(paths: Sequence[str]) -> Hashable:
    return tuple(survey(path) for path in paths)


def remember(what: Hashable, paths: Sequence[str], identify: Callable[[], Identity]) -> Identity:
    """What identify() gives, or gave for `what` while nothing at `paths` was changed since.

    Device, inode, size and times of every file there decide whether it was. An identity whose
    files changed while it was made is handed out and not kept.
    """
    before = _state(paths)
    key = (what, before)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    identity = identify()
    if _state(paths) == before:
        with _lock:
            _kept[key] = identity
            while len(_kept) > _KEPT_MAX:
                _kept.popitem(last=False)
    return identity
