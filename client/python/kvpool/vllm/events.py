# SPDX-License-Identifier: Apache-2.0
"""KV events: which blocks this engine put into the pool, in vLLM's own records.

The pool evicts by itself, so an event of a block stored is a hint, as routers take it; when a life
of the daemon is over, what was announced is withdrawn. Scheduler's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MEDIUM = "CPU"  # vLLM's word for the host's memory


class Events:
    """Collects events until the engine takes them."""

    def __init__(self, block_tokens: int) -> None:
        self._tokens = block_tokens
        self._events: list[Any] = []
        self._announced: dict[bytes, None] = {}

    def stored(self, request: Any, first: int, count: int) -> None:
        """Blocks `first` and on of a request were given to the workers to store."""
        from vllm.distributed.kv_events import BlockStored
        from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

        hashes: Sequence[bytes] = request.block_hashes[first : first + count]
        lora = request.lora_request
        self._events.append(
            BlockStored(
                block_hashes=[maybe_convert_block_hash(each) for each in hashes],
                parent_block_hash=(
                    maybe_convert_block_hash(request.block_hashes[first - 1]) if first else None
                ),
                token_ids=list(
                    request.all_token_ids[first * self._tokens : (first + count) * self._tokens]
                ),
                block_size=self._tokens,
                lora_id=lora.lora_int_id if lora else None,
                medium=MEDIUM,
                lora_name=lora.lora_name if lora else None,
            )
        )
        for each in hashes:
            self._announced[each] = None

    def lost(self) -> None:
        """The pool that held them is gone."""
        if not self._announced:
            return
        from vllm.distributed.kv_events import BlockRemoved
        from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

        self._events.append(
            BlockRemoved(
                block_hashes=[maybe_convert_block_hash(each) for each in self._announced],
                medium=MEDIUM,
            )
        )
        self._announced.clear()

    def take(self) -> list[Any]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events
