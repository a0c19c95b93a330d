"""A node that is READY, of which the service lists fewer hosts than it has: no command uses a part of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.running_simulator import CommandResult, RunningSimulator

Call = Callable[..., CommandResult]
UP = ("up", "v4-16", "--framework", "jax", "--zone", "us-central2-b", "--name", "pair", "--yes")
JAX_JOB = '# /// script\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nprint(1)\n'


def list_all_but(simulator: RunningSimulator, *workers: int) -> None:
    """Have the service list `pair` without the endpoints of some workers."""
    state = simulator.world.nodes._state

    async def save() -> None:
        (node,) = (node for node in state.nodes.all() if node.name.endswith("/pair"))
        state.save_node(replace(node, unlisted=workers))

    simulator.call(save())


@contextmanager
def without(simulator: RunningSimulator, *workers: int) -> Iterator[None]:
    list_all_but(simulator, *workers)
    try:
        yield
    finally:
        list_all_but(simulator)


def test_no_command_reaches_a_part_of_the_hosts(
    remote: RunningSimulator, command: Call, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JAX_JOB)
    job = str(tmp_path / "job.py")
    commands = (
        ("exec", "pair", "--", "hostname"),
        ("exec", "pair@0", "--", "hostname"),
        ("cp", job, "pair:"),
        ("cp", "pair:", str(tmp_path / "back")),
        ("ssh", "pair", "--", "hostname"),
        ("forward", "pair", ":6006"),
        ("drill", "pair", "--yes"),
        ("submit", job, "--tpu", "pair", "--name", "partial"),
    )
    for workers, number in (((1,), "1"), ((0, 1), "none")):
        with without(remote, *workers):
            for words in commands:
                result = command(*words)
                told = f"Node 'pair' is READY, but the provider lists {number} of its 2 hosts."
                assert (result.code, told in result.err) == (4, True), (words, result)
                assert "tpuctl wait pair" in result.err, words
                assert result.out == "", words
            assert f"the provider lists {number} of its 2 hosts" in command("ls").out
    assert "partial" not in command("runs").out
    assert command("exec", "pair", "--", "true").code == 0


def test_a_node_that_lists_too_few_hosts_can_be_deleted(remote: RunningSimulator, command: Call) -> None:
    with without(remote, 0, 1):
        assert command("down", "pair", "--dry-run").code == 0


def test_up_and_wait_wait_for_the_rest(
    remote: RunningSimulator, starting: Callable[..., subprocess.Popen[str]]
) -> None:
    for words in (UP, ("wait", "pair")):
        with without(remote, 1):
            started = starting(*words)
            assert started.stderr
            for line in started.stderr:
                if "waiting for the hosts of pair: the provider lists 1 of its 2 hosts" in line:
                    break
            list_all_but(remote)
            _, err = started.communicate(timeout=120)
        assert (started.returncode, "waiting for SSH on 2 hosts" in err) == (0, True), err
