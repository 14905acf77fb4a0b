# SPDX-License-Identifier: Apache-2.0
"""Versions of the package and of the library within. Constant."""

from kvpool._library import VERSION, lib

__version__: str = VERSION


def version() -> str:
    """The version of libkvpool within, as "MAJOR.MINOR"."""
    return f"{lib.KVPOOL_VERSION_MAJOR}.{lib.KVPOOL_VERSION_MINOR}"
