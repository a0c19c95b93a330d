"""A header with several accelerator types runs on the node that fits; where none does, `up` is offered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]


def script(accelerator: str) -> str:
    Path("job.py").write_text(
        f"# /// script\n# [tool.tpuctl]\n# accelerator = {accelerator}\n# ///\nprint('ran')\n"
    )
    return "job.py"


@pytest.mark.parametrize("accelerator", ['"v2-8, v3-8"', '["v2-8", "v3-8"]', '"v4-8,tpu-v3-8,"'])
def test_a_list_takes_the_node_that_fits(tpuctl: Tpuctl, node: str, accelerator: str) -> None:
    result = tpuctl("submit", script(accelerator), "--name", "r1", "--dry-run")
    assert result.code == 0, result.err
    assert "n1 worker 0" in result.out


def test_the_option_overrides_the_list(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v2-8, v3-8"'), "--accelerator", "v2-8")
    assert (result.code, "There is no v2-8 to run on." in result.err) == (4, True)


def test_without_a_terminal_the_command_is_named(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v4-8, v2-8"'))
    assert result.code == 4
    assert "There is no v4-8 or v2-8 to run on." in result.err
    assert "tpuctl up v4-8" in result.err


def test_a_type_that_does_not_exist_is_named(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v3-8, v99-8"'))
    assert (result.code, "v99-8" in result.err) == (2, True)


def test_on_a_terminal_up_is_offered_and_the_run_starts_then(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="y\n")
    assert "There is no v3-8 to run on." in shown
    assert "[y/N]" in shown
    assert tpuctl("logs", "-f", "r1").out.endswith("ran\n")


def test_a_run_that_fails_after_up_says_what_bills_and_both_commands(simulator: RunningSimulator) -> None:
    simulator.faults.add("permission", method="storage.objects.create")
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="y\n")
    (node,) = simulator.world.nodes.all()
    name = node.name.rpartition("/")[2]
    assert f"Node '{name}' in europe-west4-a bills." in shown
    assert "Use it: tpuctl submit job.py --name r1" in shown
    assert f"Delete it: tpuctl down {name}" in shown


def test_on_a_terminal_a_no_creates_and_starts_nothing(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="n\n")
    assert "Declined: nothing was done." in shown
    assert "There are no TPUs" in tpuctl("ls").err + tpuctl("ls").out


@pytest.mark.parametrize("option", ["--json", "--dry-run"])
def test_a_program_and_a_rehearsal_are_not_asked(
    tpuctl: Tpuctl, simulator: RunningSimulator, option: str
) -> None:
    shown = in_terminal("submit", script('"v3-8"'), option, columns=200)
    assert "[y/N]" not in shown
    assert "tpuctl up v3-8" in shown
