# SPDX-License-Identifier: Apache-2.0
"""What identification ends in: an Identity, or Unidentified with the reason.

Plain values without references to files; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass


class Unidentified(Exception):
    """These weights cannot be told from others, so their KV must stay private.

    `reason` is one sentence for people: which file, and what about it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Identity:
    """Names weights by content: equal for copies, different for other weights.

    `digest` is the identity itself, 64 hexadecimal digits. The rest tells how it came about:
    `kind` ("safetensors", "gguf", "adapter" or "configuration"), `files` (names of the files that
    were covered), `tensors` (how many), `bytes_total` (bytes of the weight files), `bytes_read`
    (bytes read to make it) and `seconds` (that it took). Where the process had it already, these
    are those of the first time.
    """

    digest: str
    kind: str
    files: tuple[str, ...]
    tensors: int
    bytes_total: int
    bytes_read: int
    seconds: float
