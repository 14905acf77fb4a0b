# SPDX-License-Identifier: Apache-2.0
"""Turns the connector on where the user chose none: vLLM loads this by its entry point.

Every process of vLLM calls :func:`register`; only the one that makes the configuration does
something. A user's own connector, ``VLLM_PLUGINS`` and ``KVPOOL_DISABLE`` win. Never raises.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from kvpool.engine.settings import disabled_by_environment

log = logging.getLogger("vllm.kvpool")

CONNECTOR = "KvpoolConnector"
MODULE = "kvpool.vllm.connector"
_MARK = "_kvpool_chooses"
_SHARED = "prompt KV is shared through the pool of this host"


def register() -> None:
    """Makes vLLM's configuration choose the pool's connector where nobody chose one."""
    if disabled_by_environment():
        return
    try:
        _install()
    except Exception as e:  # the engine starts, whatever is wrong here
        log.warning("kvpool: off, vLLM runs without it: %s", e)


def _install() -> None:
    from vllm.config import VllmConfig

    original = getattr(VllmConfig, "_post_init_kv_transfer_config", None)
    if original is None:
        raise RuntimeError("this release of vLLM has no place where a plugin chooses a connector")
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def chosen(self: Any) -> None:
        original(self)
        try:
            choose(self)
        except Exception as e:
            log.warning("kvpool: off, vLLM runs without it: %s", e)

    setattr(chosen, _MARK, True)
    VllmConfig._post_init_kv_transfer_config = chosen  # type: ignore[method-assign]


def choose(config: Any) -> None:
    """Sets the connector in a configuration that has none, where the engine can share."""
    from kvpool.vllm import facts, versions
    from kvpool.vllm.geometry import Unsupported

    if config.kv_transfer_config is not None or config.model_config is None:
        return
    version = versions.installed()
    problems = versions.seam_problems()
    if problems:
        raise RuntimeError(f"vLLM {version} is not known and differs: {'; '.join(problems)}")
    try:
        facts.check_device()
        facts.check(config)
    except Unsupported as e:
        log.info("kvpool: KV is not shared: %s", e)
        return
    from vllm.config import KVTransferConfig

    config.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR,
        kv_connector_module_path=MODULE,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
    )
    if not versions.known(version):
        log.warning(
            "kvpool: vLLM %s was not tested (tested: %s); it looks the same, so it is used",
            version,
            ", ".join(versions.KNOWN),
        )
    _tell()


def _tell() -> None:
    """One line where a daemon answers; silence where none does, since one may come later."""
    import kvpool

    try:
        with kvpool.Pool(name="vllm", require=True):
            log.info("kvpool: %s (KVPOOL_DISABLE=1: not)", _SHARED)
    except kvpool.NotConnected as e:
        log.debug("kvpool: %s", e)
    except kvpool.Error as e:
        log.warning("kvpool: the daemon is there, but: %s", e)
