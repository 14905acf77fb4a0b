# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a sliding window are worth their place.

A prefix of L blocks can be used where its window has the blocks that cover the last W tokens before
L. So a window's blocks are stored before the ends at which somebody may go on: the end of the
prompt, wherever the answer may end, and where a chain that is already there branches off. Pure
functions.
"""

from __future__ import annotations


def start(end: int, window: int, block_tokens: int) -> int:
    """The first block that the window before block `end` reaches into."""
    return max(0, (end * block_tokens - window) // block_tokens)


def wanted(
    ends: set[int], prompt_blocks: int, first: int, last: int, window: int, block_tokens: int
) -> list[tuple[int, int]]:
    """Runs [a, b) of blocks within [first, last) to store: those before each of `ends`, and all
    behind the prompt, where a block is an end as soon as it is full."""
    spans = [(start(end, window, block_tokens), end) for end in ends]
    if last > prompt_blocks:
        spans.append((prompt_blocks, last))
    runs: list[tuple[int, int]] = []
    for a, b in sorted((max(a, first), min(b, last)) for a, b in spans):
        if a >= b:
            continue
        if runs and a <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], b))
        else:
            runs.append((a, b))
    return runs
