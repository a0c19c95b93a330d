"""The README followed without a cloud: from `apply` on the stand-in to a log through the simulated IAP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tests.terraform.workbench import SOURCE, Workbench

pytestmark = pytest.mark.slow

Tpuctl = Callable[..., CommandResult]
COMMANDS = (
    "tpuctl init --from-terraform outputs.json",
    "tpuctl sim start --iam iam.json --iam-user user:ME@MY-DOMAIN",
    "tpuctl doctor",
    "tpuctl up v3-8",
    "tpuctl submit hello.py",
    "tpuctl logs -f",
)


@pytest.fixture
def stopped(home: Path, tpuctl: Tpuctl) -> Iterator[None]:
    """No simulator runs after the test."""
    yield
    assert tpuctl("sim", "stop").code == 0


def test_the_readme_has_these_commands() -> None:
    text = (SOURCE / "README.md").read_text()
    section = text.partition("## Rehearse it without a cloud")[2].partition("\n## ")[0]
    lines = [line.partition(" #")[0].strip() for line in section.splitlines()]
    assert [line for line in lines if line in COMMANDS] == list(COMMANDS)
    assert "echo 'target = \"sim\"' >> tpuctl.toml" in lines


@pytest.mark.usefixtures("stopped")
def test_from_apply_to_a_log(workbench: Workbench, tpuctl: Tpuctl) -> None:
    run = partial(workbench.run, "examples/minimal")
    applied = run("apply", "-auto-approve", "-no-color")
    assert applied.code == 0, applied.text
    Path("iam.json").write_text(run("show", "-json").out)
    Path("outputs.json").write_text(run("output", "-json").out)
    run("destroy", "-auto-approve", "-no-color")
    Path("hello.py").write_text("print('hello from a TPU host')\n")
    for command in COMMANDS:
        words = command.replace("ME@MY-DOMAIN", "ada@example.com").split()[1:]
        result = tpuctl(*words, *(["--yes"] if words[0] == "up" else []))
        assert result.code == 0, (command, result.out, result.err)
        if words[0] == "init":
            with Path("tpuctl.toml").open("a") as file:
                file.write('target = "sim"\n')
        if words[0] == "doctor":
            assert "the firewall rule tpuctl-ssh-through-iap lets it reach port 22" in result.out
    assert result.out == "hello from a TPU host\n"
    events = [json.loads(line) for line in tpuctl("sim", "events", "--json").out.splitlines()]
    assert [event for event in events if event.get("service") == "iap"], "SSH went through IAP"
