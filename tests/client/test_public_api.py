"""The public names are those on record and are there, and importing tpuctl imports nothing else."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import tpuctl
import tpuctl.cloud.iap
import tpuctl.cloud.simulator
import tpuctl.cloud.ssh
import tpuctl.config
import tpuctl.errors
import tpuctl.faults
import tpuctl.nodes
import tpuctl.sim.events
import tpuctl.sim.faults
import tpuctl.sim.world
import tpuctl.testing
from tests.client.public_api import RECORD, description
from tests.paths import ROOT

CLASSES = {name: value for name in tpuctl.__all__ if inspect.isclass(value := getattr(tpuctl, name))}


def test_the_public_names_are_those_on_record() -> None:
    recorded, present = RECORD.read_text().splitlines(), description().splitlines()
    changes = [line for line in difflib.unified_diff(recorded, present, lineterm="", n=0) if line[0] in "+-"]
    assert not changes, "\n".join([
        "The public API differs from its record:", *changes[2:],
        "If that is meant, add a line to CHANGELOG.md, and run: python -m tests.client.public_api",
    ])  # fmt: skip


def test_public_classes_and_their_members_are_documented() -> None:
    for name, kind in CLASSES.items():
        assert kind.__doc__, name
        assert not kind.__doc__.startswith(f"{name}("), "the docstring is that of dataclasses"
        for member, value in vars(kind).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{member}"


def test_records_are_frozen() -> None:
    records = [kind for kind in CLASSES.values() if dataclasses.is_dataclass(kind)]
    assert len(records) > 15
    for kind in records:
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
        assert issubclass(kind, tpuctl.Record) or kind.__module__.startswith("tpuctl.display")


PROGRAM = """
import sys
before = set(sys.modules)
import tpuctl
print(*sorted(set(sys.modules) - before))
import tpuctl.errors
dir(tpuctl)
print(*sorted(name for name in sys.modules if name.startswith("tpuctl")))
"""


def test_importing_tpuctl_imports_no_other_module() -> None:
    program = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, '.')\n{PROGRAM}"]
    lines = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == ["__future__ tpuctl", "tpuctl tpuctl.errors"]


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    for name in tpuctl.__all__:
        assert getattr(tpuctl, name) is not None
    assert dir(tpuctl) == sorted(tpuctl.__all__)
    named = {name for names in tpuctl._PLACES.values() for name in names}
    assert named == set(tpuctl.__all__) - {"errors", "testing", "__version__"}
    for place, names in tpuctl._PLACES.items():
        assert all(hasattr(import_module(f"tpuctl.{place}"), name) for name in names)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Clinet'"):
        tpuctl.Clinet  # type: ignore[attr-defined]  # noqa: B018


MODULES = (
    tpuctl, tpuctl.cloud.iap, tpuctl.cloud.simulator, tpuctl.cloud.ssh, tpuctl.config,
    tpuctl.errors, tpuctl.faults, tpuctl.nodes, tpuctl.sim.events, tpuctl.sim.faults, tpuctl.sim.world,
    tpuctl.testing,
)  # fmt: skip
EMULATED = "tpuctl.sim.guest._tpuctl_tpu.findings"
"""Needs TensorFlow."""


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_name_that_is_exported_is_there(module: ModuleType) -> None:
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_every_module_that_exports_is_among_these() -> None:
    files = [path for path in (ROOT / "tpuctl").rglob("*.py") if "\n__all__" in path.read_text()]
    exporting = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files
    }
    assert exporting - {EMULATED} == {module.__name__ for module in MODULES}
