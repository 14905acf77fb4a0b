# SPDX-License-Identifier: Apache-2.0
"""The package as it was installed, and as it is found where it was not."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import kvpool
import pytest

SOURCE = Path(__file__).parents[2]


def test_should_be_the_installed_one_and_know_its_version() -> None:
    assert not Path(kvpool.__file__).is_relative_to(SOURCE / "client")
    assert kvpool.__version__ == importlib.metadata.version("kvpool")
    assert kvpool.__version__.startswith(kvpool.version() + ".")


def test_should_bring_types_and_all_files_that_the_source_has() -> None:
    here = Path(kvpool.__file__).parent
    source = SOURCE / "client/python/kvpool"
    assert (here / "py.typed").exists()
    for path in source.rglob("*.py"):
        assert (here / path.relative_to(source)).exists(), path


def test_should_offer_itself_to_vllm() -> None:
    (point,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="kvpool")
    assert point.value == "kvpool.vllm.plugin:register"


def from_source(code: str) -> subprocess.CompletedProcess[str]:
    """Runs it with the package as it lies in the source folder, without its extension."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCE / "client/python")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "code", ["from kvpool import Pool", "import kvpool; kvpool.Pool()", "import kvpool.channel"]
)
def test_should_say_what_to_do_where_the_extension_is_not_built(code: str) -> None:
    done = from_source(code)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: kvpool's extension module is not built")
    assert "pip install ." in last


def test_should_find_what_needs_no_library_where_it_is_not_built() -> None:
    done = from_source("import kvpool.identity, kvpool; print(kvpool.Error.__name__)")
    assert (done.returncode, done.stdout) == (0, "Error\n"), done.stderr


def test_should_offer_all_names_and_no_others() -> None:
    for name in kvpool.__all__:
        assert getattr(kvpool, name) is not None
        assert name in dir(kvpool)
    with pytest.raises(AttributeError, match="no attribute 'pond'"):
        kvpool.pond  # noqa: B018
