# SPDX-License-Identifier: Apache-2.0
"""libkvpool as cffi gives it: `lib` has the functions of kvpool.h, `ffi` its types.

Shared by all threads. Every call through `lib` releases the GIL.
"""

# The extension first: what the build makes is there together or not at all.
try:
    from kvpool._kvpool import ffi, lib
    from kvpool._version import VERSION
except ModuleNotFoundError as error:
    if error.name != "kvpool._kvpool":
        raise
    raise ImportError(
        "kvpool's extension module is not built for this Python: run `pip install .` in the root "
        "of kvpool's repository, and do not import from the folder client/python",
        name="kvpool._kvpool",
    ) from None

__all__ = ["VERSION", "ffi", "lib"]
