# SPDX-License-Identifier: Apache-2.0
"""Which releases of vLLM the connector was seen working with, and whether another one fits.

The connector interface is called experimental by vLLM and changes between releases. A release that
is not known is used where everything that the shim relies on is there, and left alone otherwise.
"""

from __future__ import annotations

import inspect

KNOWN: tuple[str, ...] = ("0.32",)

# Methods of the connector's base class that the shim implements, with the arguments it relies on.
_SEAM: dict[str, tuple[str, ...]] = {
    "__init__": ("vllm_config", "role", "kv_cache_config"),
    "get_num_new_matched_tokens": ("request", "num_computed_tokens"),
    "update_state_after_alloc": ("request", "blocks", "num_external_tokens"),
    "build_connector_meta": ("scheduler_output",),
    "update_connector_output": ("connector_output",),
    "register_kv_caches": ("kv_caches",),
    "start_load_kv": ("forward_context",),
    "wait_for_save": (),
    "get_transfer_results": ("finished_req_ids",),
    "build_connector_worker_meta": (),
    "get_handshake_metadata": (),
    "set_xfer_handshake_metadata_pp_aware": ("metadata",),
    "take_events": (),
    "on_new_request": ("request",),
    "reset_cache": (),
}


def installed() -> str:
    """The version of vLLM that is importable; raises ImportError."""
    from vllm import __version__

    return str(__version__)


def known(version: str) -> bool:
    """Whether this release was tested."""
    return any(version == minor or version.startswith(minor + ".") for minor in KNOWN)


def seam_problems() -> list[str]:
    """What of the interface that the shim relies on is not there; empty where it fits."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import (
            KVConnectorBase_V1,
            SupportsHMA,
        )
        from vllm.v1.core.sched.output import SchedulerOutput
    except ImportError as e:
        return [f"vLLM has no {e.name}: {e}"]
    problems = []
    for method, arguments in _SEAM.items():
        function = getattr(KVConnectorBase_V1, method, None)
        if function is None:
            problems.append(f"KVConnectorBase_V1 has no {method}()")
            continue
        there = inspect.signature(function).parameters
        problems += [
            f"KVConnectorBase_V1.{method}() takes no {name}"
            for name in arguments
            if name not in there
        ]
    if not hasattr(SupportsHMA, "request_finished_all_groups"):
        problems.append("SupportsHMA has no request_finished_all_groups()")
    if "kv_connector_block_state" not in getattr(SchedulerOutput, "__dataclass_fields__", {}):
        problems.append("SchedulerOutput has no kv_connector_block_state")
    return problems
