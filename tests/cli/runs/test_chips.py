"""A run that holds no TPU chip is seen by `logs -f`, `runs`, `describe` and `ls`, on real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
FAST = Backoff(0.05, 0.2)
NONE = "holds no TPU chip: running on the CPU?"
WAITS = 'import os, time\nprint("started", flush=True)\nwhile not os.path.exists("end"): time.sleep(0.05)\n'
HOLDS = 'import os\nheld = open(os.environ["TPUCTL_HOST_ROOT"] + "/dev/{}")\n'
PYTORCH = '# /// script\n# [tool.tpuctl]\n# framework = "pytorch"\n# ///\n'


@pytest.fixture(autouse=True)
def soon(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts look at once whether a script holds a chip; the simulator passes this on."""
    monkeypatch.setenv("TPUCTL_SIM_CHIP_LOOK", "0.1")


def end(simulator: RunningSimulator, tpuctl: Command) -> None:
    for code in simulator.folder.glob("hosts/*/*/home/.tpuctl/runs/r1/1/code"):
        (code / "end").touch()
    assert tpuctl("wait", "r1").code == 0


def test_a_run_on_the_cpu_is_seen(simulator: RunningSimulator, node: str, tpuctl: Command) -> None:
    Path("job.py").write_text(WAITS)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    poll(lambda: NONE in tpuctl("runs").out or None, awaiting="the look", timeout=60, backoff=FAST)
    assert tpuctl("runs", "--json").json["runs"][0]["reason"] == NONE
    assert NONE in tpuctl("describe", "r1").out
    assert f"r1 {NONE}" in tpuctl("ls").out
    end(simulator, tpuctl)
    assert "Run 'r1' succeeded; no TPU chip was seen in use." in tpuctl("logs", "-f", "r1").err


@pytest.mark.slow
def test_one_worker_of_a_slice_is_told_from_the_others(simulator: RunningSimulator, tpuctl: Command) -> None:
    assert tpuctl("up", "v5litepod-16", "--name", "n1", "--yes", "--framework", "pytorch").code == 0
    holds = 'if os.environ["TPUCTL_WORKER"] != "2":\n  ' + HOLDS.format("vfio/3").partition("\n")[2]
    Path("job.py").write_text(f"{PYTORCH}import os\n{holds}{WAITS}")
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    some = "1 of 4 workers holds no TPU chip: running on the CPU?"
    poll(lambda: some in tpuctl("runs").out or None, awaiting="the look", timeout=60, backoff=FAST)
    end(simulator, tpuctl)


@pytest.mark.slow
def test_the_servers_of_a_pod_image_hold_the_chips_for_tensorflow(
    simulator: RunningSimulator, tpuctl: Command
) -> None:
    assert tpuctl("up", "v3-32", "--name", "n1", "--yes", "--runtime", "tpu-vm-tf-2.17.1-pod-pjrt").code == 0
    take = "import os, _tpuctl_chips; print(_tpuctl_chips.take(os.environ))"  # as JAX does there
    refused = tpuctl("exec", "n1", "--worker", "1", "--", "python3", "-c", take)
    assert "TPU initialization failed: open(/dev/accel0): Device or resource busy" in refused.out
    Path("job.py").write_text(WAITS)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    poll(lambda: "started" in tpuctl("logs", "r1").out or None, awaiting="a line", timeout=60, backoff=FAST)
    end(simulator, tpuctl)
    (status,) = simulator.folder.glob("hosts/*/*/home/.tpuctl/runs/r1/1/last_status.json")
    assert json.loads(status.read_text())["has_no_chip"] is False
