"""Tests that importing tpuctl imports nothing else, and that its names come when they are used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import tpuctl

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
