# SPDX-License-Identifier: Apache-2.0
"""The other process of a test: `peer.py SOCKET WORD [HEX...]`. Says what came of it on stdout."""

import sys

import harness
import kvpool


def get(socket: str, chain: str) -> None:
    """Reads the first eight blocks of a chain, if they are there, and says how many were."""
    with kvpool.Pool(socket=socket, name="peer", deadline=2.0, require=True) as pool:
        print(harness.get(pool.channel(), harness.make_layout(pool), int(chain), 8))


def write(socket: str, token: str, raw: str) -> None:
    """As a further member of an engine: writes and commits what another member reserved."""
    blocks = kvpool.Blocks(bytes.fromhex(raw))
    join = bytes.fromhex(token)
    with kvpool.Pool(socket=socket, join=join, deadline=2.0, require=True) as pool:
        layout, channel = harness.make_layout(pool), pool.channel()
        for i in range(len(blocks)):
            channel.store(layout, 0, blocks, i, [harness.content(9, i)])
        print(channel.commit(blocks))


if __name__ == "__main__":
    {"get": get, "write": write}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
