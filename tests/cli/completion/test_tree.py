"""The tree that completion reads is that of the commands."""

from __future__ import annotations

import shlex
import subprocess
import sys

import click
import pytest

from tests.cli.test_help import LEAVES
from tpuctl import accelerators
from tpuctl.cli.completion.answer import FILE, load


def completed(line: str) -> list[str]:
    """What click offers for the last word of a line, which may be empty."""
    from click.shell_completion import BashComplete

    *words, incomplete = shlex.split(line) + [""] * line.endswith(" ")
    completion = BashComplete(load(lambda kind, ctx: [f"{kind}-1"]), {}, "tpuctl", "_TPUCTL_COMPLETE")
    return [item.value or item.type for item in completion.get_completions(words[1:], incomplete)]


def test_the_file_is_up_to_date() -> None:
    """In a process of its own: click keeps the help option that a command was given first."""
    program = "from tpuctl.cli.completion.document import document; print(document(), end='')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert FILE.read_text() == result.stdout, "run: python -m tpuctl.cli.completion.document"


def test_every_command_and_option_is_completed() -> None:
    for path, command in LEAVES:
        for depth, name in enumerate(path):
            assert name in completed(f"tpuctl {' '.join(path[:depth])} ")
        options = completed(f"tpuctl {' '.join(path)} --")
        own = {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        }
        assert own | {"--help"} <= set(options), path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tpuctl up v3-10", ["v3-1024"]),
        ("tpuctl up --framework t", ["tensorflow"]),
        ("tpuctl up --runtime tpu-u", ["tpu-ubuntu2204-base"]),
        ("tpuctl ls --target ", ["gcp", "sim"]),
        ("tpuctl submit job.py --accelerator v2-8", ["v2-8"]),
        ("tpuctl submit jobs/di", ["jobs/di"]),
        ("tpuctl submit job.py --tpu ", ["nodes-1"]),
        ("tpuctl submit job.py --dataset ", ["datasets-1"]),
        ("tpuctl down n", ["nodes-1"]),
        ("tpuctl down first ", ["nodes-1"]),
        ("tpuctl logs ", ["runs-1"]),
        ("tpuctl logs -f r", ["runs-1"]),
        ("tpuctl pull ", ["runs-1"]),
        ("tpuctl cancel ", ["runs-1"]),
        ("tpuctl resubmit r", ["runs-1"]),
        ("tpuctl resubmit r1 --on ", ["nodes-1"]),
        ("tpuctl diff r1 ", ["runs-1"]),
        ("tpuctl pull run --to ", ["file"]),
        ("tpuctl data head ", ["datasets-1"]),
        ("tpuctl data rm ", ["datasets-1"]),
        ("tpuctl data fetch mn", ["mnist"]),
        ("tpuctl data upload pets ", ["file"]),
        ("tpuctl sim fault add preem", ["preemption"]),
        ("tpuctl help data up", ["upload"]),
        ("tpuctl completion z", ["zsh"]),
        ("tpuctl ls --bucket ", []),
    ],
)
def test_values_are_completed(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_zones_and_types_are_those_of_the_catalogue() -> None:
    assert completed("tpuctl ls --zone ") == accelerators.zones()
    assert completed("tpuctl up ") == sorted(accelerators.catalogue())


def test_options_of_a_fault_are_those_of_its_kind() -> None:
    assert "--notice" in completed("tpuctl sim fault add preemption --")
    assert "--notice" not in completed("tpuctl sim fault add stockout --")
