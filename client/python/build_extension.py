# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of the extension from kvpool.h, so that the two cannot drift apart.

Run by the build: `build_extension.py HEADER OUTPUT`. The compiler then checks what cffi understood
against the header itself.
"""

import re
import sys
from pathlib import Path

import cffi

# Macros that Python needs; cffi asks the compiler for their values.
MACROS = ("KVPOOL_VERSION_MAJOR", "KVPOOL_VERSION_MINOR", "KVPOOL_KEY_SIZE", "KVPOOL_ALL_SHARDS")


def declarations(header: str) -> str:
    """The declarations of a C header, without comments and what is the preprocessor's."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    return text + "".join(f"#define {name} ...\n" for name in MACROS)


def main(header: Path, output: Path) -> None:
    """Reads the header and writes the extension's source."""
    ffi = cffi.FFI()
    ffi.cdef(declarations(header.read_text(encoding="utf-8")))
    ffi.set_source("kvpool._kvpool", '#include "client/kvpool.h"\n')
    ffi.emit_c_code(str(output))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
