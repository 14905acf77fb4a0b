# SPDX-License-Identifier: Apache-2.0
"""As much of vLLM as the plugin looks at, put in its place for one test.

For what real releases cannot show at will: an interface that differs, a configuration that cannot
share. What the real one does is in tests/e2e.
"""

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class KVConnectorBase_V1:  # noqa: N801 - vLLM's name
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None: ...
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> None: ...
    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...
    def build_connector_meta(self, scheduler_output: Any) -> None: ...
    def update_connector_output(self, connector_output: Any) -> None: ...
    def register_kv_caches(self, kv_caches: Any) -> None: ...
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...
    def wait_for_save(self) -> None: ...
    def get_transfer_results(self, finished_req_ids: Any) -> None: ...
    def build_connector_worker_meta(self) -> None: ...
    def get_handshake_metadata(self) -> None: ...
    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None: ...
    def take_events(self) -> None: ...
    def on_new_request(self, request: Any) -> None: ...
    def reset_cache(self) -> None: ...


class SupportsHMA:
    def request_finished_all_groups(self, request: Any, block_ids: Any) -> None: ...


@dataclass
class SchedulerOutput:
    kv_connector_block_state: Any = None


@dataclass
class KVTransferConfig:
    kv_connector: str
    kv_connector_module_path: str
    kv_role: str
    kv_load_failure_policy: str


def model(**changes: Any) -> SimpleNamespace:
    fields = {"runner_type": "generate", "is_encoder_decoder": False, "is_hybrid": False}
    return SimpleNamespace(**(fields | changes))


@dataclass
class VllmConfig:
    """Made as vLLM's is: what the plugin wraps runs when it is made."""

    kv_transfer_config: Any = None
    model_config: Any = field(default_factory=model)
    parallel_config: Any = field(default_factory=SimpleNamespace)
    speculative_config: Any = None
    cache_config: Any = field(default_factory=SimpleNamespace)

    def __post_init__(self) -> None:
        self._post_init_kv_transfer_config()

    def _post_init_kv_transfer_config(self) -> None: ...


def install(
    monkeypatch: pytest.MonkeyPatch, *, version: str = "0.32.0", device: str = "cpu"
) -> dict[str, ModuleType]:
    """Fresh modules each time, so that what the plugin wraps is not wrapped yet."""

    class Config(VllmConfig):
        def _post_init_kv_transfer_config(self) -> None: ...

    class Base(KVConnectorBase_V1):
        pass

    platform = SimpleNamespace(device_type=device, is_cpu=lambda: device == "cpu")
    contents: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": version},
        "vllm.config": {"VllmConfig": Config, "KVTransferConfig": KVTransferConfig},
        "vllm.platforms": {"current_platform": platform},
        "vllm.distributed": {},
        "vllm.distributed.kv_transfer": {},
        "vllm.distributed.kv_transfer.kv_connector": {},
        "vllm.distributed.kv_transfer.kv_connector.v1": {},
        "vllm.distributed.kv_transfer.kv_connector.v1.base": {
            "KVConnectorBase_V1": Base,
            "SupportsHMA": SupportsHMA,
        },
        "vllm.v1": {},
        "vllm.v1.core": {},
        "vllm.v1.core.sched": {},
        "vllm.v1.core.sched.output": {"SchedulerOutput": SchedulerOutput},
    }
    modules = {}
    for name, names in contents.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(names)
        monkeypatch.setitem(sys.modules, name, modules[name])
    return modules
