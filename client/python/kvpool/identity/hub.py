# SPDX-License-Identifier: Apache-2.0
"""Where a model named as on the Hugging Face Hub lies on this machine.

Looks into the local cache only; never at the network. Pure functions over the file system and the
environment; any process.
"""

from __future__ import annotations

import os
import re

from kvpool.identity.files import printable
from kvpool.identity.result import Unidentified

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def _cache_folder() -> str:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return os.path.expanduser(os.environ[variable])
    home = os.environ.get("HF_HOME")
    if not home:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        home = os.path.join(base, "huggingface")
    return os.path.join(os.path.expanduser(home), "hub")


def _commit(folder: str, revision: str) -> str:
    if _COMMIT.fullmatch(revision):
        return revision
    path = os.path.join(folder, "refs", *revision.split("/"))
    try:
        with open(path, encoding="ascii") as file:
            commit = file.read(64).strip()
    except (OSError, ValueError):
        raise Unidentified(f"{printable(folder)}: no revision {revision!r} there") from None
    if not _COMMIT.fullmatch(commit):
        raise Unidentified(f"{printable(path)}: not a commit")
    return commit


def locate(name: str, *, revision: str | None = None, cache: str | None = None) -> str:
    """The folder (or GGUF file) that an engine means by `name`.

    A path that exists is returned as it is. Another name is looked up in the Hugging Face cache:
    `cache`, else $HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub. `revision`: branch, tag or
    commit; "main" where None. Unidentified where it is not there.
    """
    try:
        if os.path.exists(name):
            return name
    except ValueError:
        pass  # a byte that no path has: no name of a model either
    revision = revision or "main"
    if not _NAME.fullmatch(name):
        raise Unidentified(f"{printable(name)}: no such folder, and no name of a model on the Hub")
    if not _REVISION.fullmatch(revision) or ".." in revision.split("/"):
        raise Unidentified(f"{printable(revision)}: no name of a revision")
    root = cache or _cache_folder()
    folder = os.path.join(root, "models--" + name.replace("/", "--"))
    if not os.path.isdir(folder):
        raise Unidentified(f"{printable(name)}: no such folder, and not in {printable(root)}")
    snapshot = os.path.join(folder, "snapshots", _commit(folder, revision))
    if not os.path.isdir(snapshot):
        raise Unidentified(f"{printable(snapshot)}: no such folder")
    return snapshot
