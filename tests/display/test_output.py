"""Tests that displays need no IPython, and use the one that runs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tpuctl.display.output import is_notebook, running_shell

WITHOUT_IPYTHON = """
import sys
sys.modules["IPython"] = None  # the documented way to make an import fail
import tpuctl
from tpuctl.client.runs.records import Curve, Metrics, Point
from tpuctl.display.following import FollowScreen, RunView
listing = tpuctl.Listing([1, 2], "numbers", {"number": lambda number: number})
metrics = Metrics("r1", {"loss": Curve("loss", "", (Point(1, 0.5, 0.0),))}, ())
assert "<table" in listing._repr_html_() and "<svg" in metrics._repr_html_()
print(listing, metrics)
screen = FollowScreen(labels=False)
screen.line(0, "a line")
screen.update(RunView("r1", "running"))
print(sorted(name for name in sys.modules if name.split(".")[0] in ("IPython", "numpy", "google", "grpc")))
"""


def test_without_ipython_records_are_shown_and_runs_followed() -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_IPYTHON]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "NUMBER", "1", "2 <metrics of r1>", "  loss: 0.5 at step 1", "a line", "r1: running", "['IPython']",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_a_kernel_is_a_notebook_and_a_terminal_is_none(
    monkeypatch: pytest.MonkeyPatch, shell: object, expected: bool
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert running_shell() is shell
    assert is_notebook() is expected


def test_an_ipython_that_was_not_imported_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert running_shell() is None
    assert is_notebook() is False
