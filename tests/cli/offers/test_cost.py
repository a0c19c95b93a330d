"""`tpuctl cost`: what real runs and TPUs on the simulator are said to have cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.polling import poll

Tpuctl = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'


@pytest.fixture
def ended(tpuctl: Tpuctl, node: str) -> str:
    """A TPU on which a run has ended, and that was idle for a second at least."""
    Path("job.py").write_text(HEADER)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    assert tpuctl("wait", "r1").code == 0

    def is_idle() -> bool | None:
        entries = tpuctl("cost", "--json").json["entries"]
        return any(entry["run"] is None for entry in entries) or None

    poll(is_idle, awaiting="idle time", timeout=60)
    return node


def test_runs_and_idle_time_are_told_also_of_a_tpu_that_is_gone(tpuctl: Tpuctl, ended: str) -> None:
    shown = tpuctl("cost")
    assert shown.code == 0, shown.err
    assert shown.out.split()[:5] == ["RUN", "ATTEMPTS", "TIME", "COST", "PRICE"]
    assert {line.split("  ")[0] for line in shown.out.splitlines()[1:]} == {
        "r1", f"no run, {ended} in europe-west4-a",
    }  # fmt: skip
    assert "made up by the simulator" in shown.out
    assert "Estimate since" in shown.err
    assert "no bill" in shown.err
    assert shown.err.splitlines()[-1] == f"Next: tpuctl describe {ended}"
    assert tpuctl("down", ended, "--yes").code == 0
    gone = tpuctl("cost", "--json").json
    assert gone["missing"] == []
    assert gone["is_estimate"] is True
    (run,) = (entry for entry in gone["entries"] if entry["run"] == "r1")
    assert (run["attempt"], run["node"], run["is_present_price"]) == (1, ended, False)
    idle = [entry for entry in gone["entries"] if entry["run"] is None]
    assert sum(entry["seconds"] for entry in idle) >= 1
    assert all(entry["ended"] and entry["uid"] == run["uid"] for entry in idle)
    assert tpuctl("cost").err.splitlines()[-1] == "Next: tpuctl describe r1"


def test_by_node_user_and_label(tpuctl: Tpuctl, ended: str) -> None:
    for by, key in (("node", f"{ended} in europe-west4-a"), ("label", "no label")):
        (group,) = tpuctl("cost", "--by", by, "--json").json["groups"]
        assert (group[by], group["attempts"]) == (key, 1)


def test_nothing_was_used(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    shown = tpuctl("cost", "--since", "1h")
    assert shown.code == 0
    assert "Nothing was used since" in shown.err
    assert tpuctl("cost", "--since", "never").code == 2
