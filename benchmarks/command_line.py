"""Start-up of the command line, against importing click alone and against gcloud on the same simulator."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from benchmarks.measure import Ratio, ratio, report, rows, side_by_side
from benchmarks.own_simulator import own_simulator
from tpuctl.cloud import simulator as simulator_process

RUNS = 9


def main() -> None:
    """Measure and report."""
    with own_simulator() as (folder, served):
        measure(dict(os.environ), served, str(folder))


def measure(environment: dict[str, str], served: simulator_process.PublishedEndpoints, folder: str) -> None:
    """Run the commands in turn, with one node to list."""
    tpuctl = [str(Path(sys.executable).with_name("tpuctl"))]
    side_by_side({"up": [*tpuctl, "up", "v3-8", "--yes"]}, runs=0, environment=environment)
    commands = {
        'python -c "import click"': [sys.executable, "-c", "import click"],
        "tpuctl --help": [*tpuctl, "--help"],
        "completion of tpuctl submit --": completion(tpuctl, "submit --"),
        "completion of tpuctl down": completion(tpuctl, "down "),
        "tpuctl ls": [*tpuctl, "ls"],
    }
    notes = []
    gcloud = shutil.which("gcloud")
    if gcloud:
        commands["gcloud compute tpus tpu-vm list"] = [
            gcloud, "compute", "tpus", "tpu-vm", "list", "--zone=-",
        ]  # fmt: skip
        environment = {**environment, **gcloud_environment(served, folder)}
    else:
        notes.append("gcloud is not installed: no comparison")
    timings = side_by_side(commands, runs=RUNS, environment=environment)
    help_against_click = ratio(
        "tpuctl --help / import click",
        timings["tpuctl --help"],
        timings['python -c "import click"'],
        "2 at most",
    )
    completion_against_click = ratio(
        "completion / import click",
        timings["completion of tpuctl submit --"],
        timings['python -c "import click"'],
        "2 at most; 100 ms CPU",
    )
    ratios: list[Ratio] = [help_against_click, completion_against_click]
    if gcloud:
        gcloud_list = timings["gcloud compute tpus tpu-vm list"]
        ratios.append(ratio("gcloud list / tpuctl ls", gcloud_list, timings["tpuctl ls"], "2 at least"))
    report("command line", rows(timings), ratios, notes)


def completion(tpuctl: list[str], line: str) -> list[str]:
    """Return the command by which bash asks for the completions of a line."""
    count = line.count(" ") + 1
    question = [f"COMP_WORDS=tpuctl {line}", f"COMP_CWORD={count}", "_TPUCTL_COMPLETE=bash_complete"]
    return ["env", *question, *tpuctl]


def gcloud_environment(served: simulator_process.PublishedEndpoints, folder: str) -> dict[str, str]:
    """Return the variables that point gcloud at the simulator, with its own configuration folder."""
    return {
        "CLOUDSDK_CONFIG": f"{folder}/gcloud",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{served.tpu_rest}/",
        "CLOUDSDK_CORE_PROJECT": served.project,
    }


if __name__ == "__main__":
    main()
