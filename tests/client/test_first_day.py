"""doctor --live: what it names that differs from the table of images, and that it deletes what it makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.client import first_day
from tpuctl.client.context import Context
from tpuctl.config import load
from tpuctl.errors import StateError
from tpuctl.flows.progress import silent
from tpuctl.flows.project.doctor import DIFFERENT, FAILED, OK, WARNING, Finding
from tpuctl.sim.iam.enforcement import enforcement

Tpuctl = Callable[..., CommandResult]
NOBODY = 65534
REFUSAL = "Constraint constraints/compute.disableGuestAttributesAccess violated for project."
INTRUDER = ["intruder", "600"]


@dataclass
class Host:
    """The folder of the host of a stage, and what is undone at the end of a test."""

    folder: Path
    stack: ExitStack

    def replace(self, path: str, text: str) -> None:
        """Put a shell program in the place of one, which stays beside it as NAME.real."""
        program = self.folder / path
        program.rename(program.with_name(f"{program.name}.real"))
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)

    def hold(self, device: str) -> None:
        """Have a process hold a chip."""
        with (self.folder / "root" / device).open() as file:
            holder = subprocess.Popen(INTRUDER, executable=shutil.which("sleep"), stdin=file)
        self.stack.callback(lambda: (holder.kill(), holder.wait()))

    def lock(self) -> None:
        """Leave libtpu's lock file of another user, where this one may."""
        lock = self.folder / "tmp/libtpu_lockfile"
        lock.touch()
        if os.geteuid() == 0:
            os.chown(lock, NOBODY, NOBODY)

    def install(self, name: str) -> None:
        """Have the image bring a distribution."""
        (site,) = (self.folder / "python").glob("lib/python*/site-packages")
        (site / f"{name}.dist-info").mkdir()
        own, _, version = name.partition("-")
        (site / f"{name}.dist-info/METADATA").write_text(f"Name: {own}\nVersion: {version}\n")

    def spoil(self, module: str) -> None:
        """Have the image lack a module."""
        (site,) = (self.folder / "python").glob("lib/python*/site-packages")
        (site / f"{module}.py").write_text("raise ImportError\n")


@dataclass(frozen=True)
class Case:
    """A difference that is planted, and the finding that has to name it."""

    check: str
    state: str
    words: str
    plant: Callable[[Host], object] = lambda host: None
    simulator: Mapping[str, Any] = field(default_factory=dict)
    fault: Mapping[str, str] = field(default_factory=dict)
    stage: int = 1


PYTHON, REAL = "python/bin/python3", 'exec "$0.real" "$@"'
CASES = {
    "another Python": Case(
        "python", DIFFERENT, "3.12.3; the simulator says 3.",
        lambda host: host.replace(PYTHON, f'[ "$1" = -V ] && echo "Python 3.12.3" && exit; {REAL}'),
    ),
    "no pip": Case(
        "pip", DIFFERENT, "none; the table says 22.0.2",
        lambda host: host.spoil("pip"),
    ),
    "no sudo": Case(
        "sudo", DIFFERENT, "no; the table says yes", lambda host: host.replace("bin/sudo", "exit 1")
    ),
    "a missing device file": Case(
        "devices", DIFFERENT, "none; the table says /dev/vfio/0",
        lambda host: (host.folder / "root/dev/vfio/0").unlink(),
    ),
    "an unknown holder": Case(
        "holders", DIFFERENT, "intruder; the table says none", lambda host: host.hold("dev/vfio/0")
    ),
    "another user's lock file": Case(
        "lock file", DIFFERENT,
        "of another user; the table says none" if os.geteuid() == 0 else "of this user", Host.lock,
    ),
    "a framework in a plain image": Case(
        "packages", DIFFERENT, "jax 0.4.1 is there", lambda host: host.install("jax-0.4.1")
    ),
    "late guest attributes": Case("up", DIFFERENT, "are late", simulator={"publish_delay": 3.0}),
    "guest attributes refused": Case(
        "up", FAILED, REFUSAL,
        fault={"kind": "error", "method": "GetGuestAttributes", "code": "FAILED_PRECONDITION",
               "message": REFUSAL},
    ),
    "a default account without roles": Case(
        "account", WARNING, "whether the default service account may write to the bucket is not known",
        simulator={"iam": lambda: enforcement(None, None, "none")}, stage=0,
    ),
    "a closed firewall": Case(
        "firewall", DIFFERENT, "No firewall rule of default lets machines outside of it reach port 22",
        simulator={"firewall": "closed"}, stage=0,
    ),
}  # fmt: skip


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try nothing on a TPU but to reach it, and to see what its hosts have."""
    monkeypatch.setattr(first_day.Visit, "on_one_host", {})


def planted(
    monkeypatch: pytest.MonkeyPatch, folder: Path, stack: ExitStack, plant: Callable[[Host], object]
) -> None:
    """Have each TPU of a stage differ as soon as it is up."""
    create = first_day.creation.create

    def create_and_plant(*arguments: Any) -> Any:
        made = create(*arguments)
        for host in (folder / "hosts").glob("*/w0"):
            plant(Host(host, stack))
        return made

    monkeypatch.setattr(first_day.creation, "create", create_and_plant)


def live(tpuctl: Tpuctl, stage: int) -> tuple[CommandResult, list[dict[str, str]]]:
    """Run one stage, and return the findings that are not ok."""
    result = tpuctl("doctor", "--live", "--stage", str(stage), "--yes", "--json")
    return result, [each for each in result.json["checks"] if each["state"] != OK]


@pytest.mark.usefixtures("briefly")
def test_a_stage_names_no_difference_on_the_simulator_and_deletes_its_tpu(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    result, others = live(tpuctl, 1)
    assert (result.code, others) == (0, []), result.err
    assert simulator.world.nodes.all() == []
    report = Path("tpuctl-doctor.md").read_text()
    assert "## Differences and failures\n\nNone.\n" in report
    assert "| devices | ok | /dev/vfio/0 |" in report


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_planted_difference_is_named(
    tpuctl: Tpuctl, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack, case: Case
) -> None:
    options = {name: value() if callable(value) else value for name, value in case.simulator.items()}
    simulator = RunningSimulator(tmp_path / "state" / "sim", **options)
    stack.callback(simulator.close)
    if case.fault:
        fault = dict(case.fault)
        simulator.faults.add(fault.pop("kind"), **fault)
    planted(monkeypatch, simulator.folder, stack, case.plant)
    if "publish_delay" in options:
        monkeypatch.setattr(first_day, "LATE", 1.0)
    result, others = live(tpuctl, case.stage)
    assert [(each["check"], each["state"]) for each in others] == [(case.check, case.state)], others
    assert case.words in others[0]["text"]
    assert result.code == (0 if case.state == WARNING else 3)
    assert simulator.world.nodes.all() == []
    assert others[0]["text"][:20] in Path("tpuctl-doctor.md").read_text()


@pytest.mark.slow
def test_all_stages_pass_on_the_simulator_and_leave_nothing(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    result = tpuctl("doctor", "--live", "--yes", "--json")
    assert [each for each in result.json["checks"] if each["state"] != OK] == []
    checks = [each["check"] for each in result.json["checks"]]
    assert [checks.count(name) for name in ("up", "jax", "second user", "restart", "drill", "down")] == [
        2, 2, 1, 1, 1, 2,
    ]  # fmt: skip
    assert simulator.world.nodes.all() == []
    assert tpuctl("runs", "--json").json["runs"] == []
    assert tpuctl("ls", "--json").json["queued_resources"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError(), StateError("It broke.")])
def test_the_tpu_is_deleted_however_a_stage_ends(simulator: RunningSimulator, error: BaseException) -> None:
    def show(finding: Finding) -> None:
        if finding.check == "sudo":
            assert len(simulator.world.nodes.all()) == 1
            raise error

    context = Context(load({}), silent)
    day = first_day.FirstDay(context, silent, show)
    with pytest.raises(type(error)):
        day.run(1, day.plan(1))
    context.close()
    assert simulator.world.nodes.all() == []
    assert day.findings[-1].text.startswith("deleted")
    assert f"- stage: ended by {type(error).__name__}" in day.report()


def test_a_tpu_that_this_machine_can_no_longer_delete_deletes_itself(simulator: RunningSimulator) -> None:
    context = Context(load({}), silent)
    day = first_day.FirstDay(context, silent, lambda finding: None)
    plans = [day.plan(number) for number in first_day.STAGES]
    context.close()
    assert [plan.request.metadata["tpuctl-ttl"] for plan in plans] == ["2100s", "1200s"]


def test_nothing_is_created_without_a_yes(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    result = tpuctl("doctor", "--live", "--json")
    assert result.code == 0
    skipped = [each["text"] for each in result.json["checks"] if each["state"] == "skipped"]
    assert skipped == [
        "Confirmation is needed, and the command is not interactive. Pass --yes.",
        "an earlier stage has failed checks, or was not run",
    ]
    assert "in all          0.80 USD at most, by --ttl" in result.err
    assert simulator.world.nodes.all() == []


def test_the_options_of_the_live_checks_are_refused_without_it(tpuctl: Tpuctl, home: Path) -> None:
    assert tpuctl("doctor", "--stage", "1").code == 2
