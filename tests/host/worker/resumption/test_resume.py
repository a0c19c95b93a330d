"""A reboot of its hosts: the run goes on as another attempt on the same node, with nobody watching."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.control import is_held_in
from tpuctl.host.worker.records import FINISHED, LOCK_FILE
from tpuctl.polling import Backoff, poll
from tpuctl.recovery import Lease
from tpuctl.runs import Verdict

PATIENCE = 120.0
SCRIPT = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, pathlib, time\n"
    "attempt, worker = os.environ['TPUCTL_ATTEMPT'], os.environ['TPUCTL_WORKER']\n"
    "place = pathlib.Path(os.environ['PLACE'])\n"
    "print(f'attempt {attempt} of worker {worker} in', os.environ['TPUCTL_CHECKPOINT_DIR'], flush=True)\n"
    "with (place / 'started').open('a') as stream: stream.write(f'{attempt}/{worker}\\n')\n"
    "while not (place / f'end-{attempt}').exists(): time.sleep(0.05)\n"
)


class Site:
    """The run r1 on the TPU n1."""

    def __init__(
        self, tpuctl: Callable[..., CommandResult], simulator: RunningSimulator, bucket: Bucket, folder: Path,
        hosts: int = 1,
    ) -> None:  # fmt: skip
        self.tpuctl = tpuctl
        self.simulator = simulator
        self.place = folder / "place"
        self.place.mkdir()
        self.hosts = hosts
        self.run = StoredRun(bucket, "r1")
        type_ = "v3-8" if hosts == 1 else "v3-32"
        up = tpuctl("up", type_, "--name", "n1", "--framework", "jax", "--yes")
        assert up.code == 0, up.err
        Path("job.py").write_text(SCRIPT)

    def submit(self, *options: str) -> CommandResult:
        """Submit the run and return once its scripts run and its hosts would resume it."""
        result = self.tpuctl("submit", "job.py", "--name", "r1", "--env", f"PLACE={self.place}", *options)
        assert result.code == 0, result.err
        self.until_started(1)
        return result

    def until_kept(self, attempt: int) -> None:
        """Wait until each host would resume an attempt."""
        for worker in range(self.hosts):
            command = self.folder(worker, attempt) / "resume"
            self.until(lambda file=command: file.exists(), f"worker {worker} to keep attempt {attempt}")  # type: ignore[misc]
            crontab = self.disk(worker) / "crontab"
            self.until(lambda file=crontab: file.exists(), f"the crontab of worker {worker}")  # type: ignore[misc]

    def until_started(self, attempt: int) -> None:
        """Wait until the script of an attempt runs on each host."""
        expected = {f"{attempt}/{worker}" for worker in range(self.hosts)}
        self.until(lambda: expected <= set(self.started), f"attempt {attempt}")

    @property
    def started(self) -> list[str]:
        """ATTEMPT/WORKER of each start of the script."""
        file = self.place / "started"
        return sorted(file.read_text().split()) if file.exists() else []

    def end(self, attempt: int) -> Verdict:
        """Let the script of an attempt end by itself, and return the run's verdict."""
        (self.place / f"end-{attempt}").touch()
        waited = self.tpuctl("wait", "r1", "--timeout", "3m")
        verdict = self.run.verdict()
        assert verdict, waited.err
        return verdict

    def disk(self, worker: int) -> Path:
        """The folder of a host."""
        node = next(node for node in self.simulator.world.nodes.all() if node.name.endswith("/n1"))
        return self.simulator.folder / "hosts" / str(node.uid) / f"w{worker}"

    def folder(self, worker: int, attempt: int) -> Path:
        """The folder of an attempt on a host."""
        return self.disk(worker) / "home/.tpuctl/runs/r1" / str(attempt)

    def reboot(self) -> None:
        """Have the provider restart every host, with a notice."""
        self.simulator.faults.add("maintenance", node="n1", notice=0.5)

    def crash(self, worker: int) -> None:
        """Have a host lose its power, and come back."""
        fault = self.simulator.faults.add("host-death", node="n1", worker=str(worker))
        self.until(lambda: not self.lives(worker), f"the end of worker {worker}'s host")
        self.simulator.faults.remove(fault.id)

    def lives(self, worker: int) -> bool:
        """Return whether the program of any attempt runs on a host."""
        folders = (self.disk(worker) / "home/.tpuctl/runs/r1").iterdir()
        return any(is_held_in(str(folder), LOCK_FILE) for folder in folders)

    def until_forgotten(self, attempt: int) -> None:
        """Wait until no host would resume an attempt any more."""
        for worker in range(self.hosts):
            file = self.folder(worker, attempt) / "resume.json"
            self.until(lambda file=file: not file.exists(), f"worker {worker} to forget attempt {attempt}")  # type: ignore[misc]

    def has_finished(self, attempt: int) -> bool:
        """Return whether every worker of an attempt has said its last word."""
        statuses = self.run.attempt(attempt).statuses()
        return all(status is not None and status.state == FINISHED for status in statuses)

    def until(self, condition: Callable[[], object], awaiting: str) -> None:
        """Wait for an event; an error has what the hosts' programs said."""
        try:
            poll(
                lambda: True if condition() else None, awaiting=awaiting, timeout=PATIENCE,
                backoff=Backoff(0.05, 0.2),
            )  # fmt: skip
        except DeadlineError as error:
            files = [*self.simulator.folder.glob("hosts/*/w*/home/.tpuctl/runs/*/*/supervisor.log")]
            files += self.simulator.folder.glob("hosts/*/w*/cron.log")
            said = "".join(f"{path}:\n{path.read_text()}\n" for path in files)
            raise AssertionError(f"{error.message}\n{said}") from error


Tpuctl = Callable[..., CommandResult]


@pytest.fixture(params=[1])
def site(
    request: pytest.FixtureRequest,
    tpuctl: Tpuctl,
    simulator: RunningSimulator,
    bucket: Bucket,
    tmp_path: Path,
) -> Site:
    """A READY TPU."""
    return Site(tpuctl, simulator, bucket, tmp_path, request.param)


SLOW_FOUR = pytest.param(4, marks=pytest.mark.slow)
SLOW_ONE = pytest.param(1, marks=pytest.mark.slow)


@pytest.mark.parametrize("site", [1, SLOW_FOUR], indirect=True)
def test_a_maintenance_resumes_the_run_on_the_same_node_twice_and_then_not_again(site: Site) -> None:
    site.submit("--restarts", "2")
    for attempt in (1, 2):
        site.until_kept(attempt)
        site.reboot()
        site.until_started(attempt + 1)
    verdict = site.end(3)
    assert (verdict.outcome, verdict.attempt) == (runs.SUCCEEDED, 3)
    assert [earlier.outcome for earlier in site.run.earlier_verdicts(3)] == [runs.MAINTENANCE] * 2
    assert site.started == sorted(
        f"{attempt}/{worker}" for attempt in (1, 2, 3) for worker in range(site.hosts)
    )
    assert len({site.run.attempt(number).record.tpu.uid for number in (1, 2, 3)}) == 1
    for attempt in (1, 2, 3):
        log = site.tpuctl("logs", "r1", "--attempt", str(attempt)).out
        assert (
            log.count(f"attempt {attempt} of worker 0 in gs://sim-project-tpuctl/runs/r1/checkpoints") == 1
        ), log


@pytest.mark.parametrize("site", [SLOW_ONE, 4], indirect=True)
def test_hosts_that_stay_up_resume_the_run_together_with_one_that_lost_its_power(site: Site) -> None:
    site.submit("--restarts", "unlimited")
    site.until_kept(1)
    site.crash(site.hosts - 1)
    site.until_started(2)
    verdict = site.end(2)
    assert (verdict.outcome, verdict.attempt) == (runs.SUCCEEDED, 2)
    (former,) = site.run.earlier_verdicts(2)
    assert (former.outcome, former.worker) == (runs.LOST, site.hosts - 1)
    assert "was restarted; its run resumed by itself" in former.evidence
    assert len(site.started) == 2 * site.hosts


def test_a_watcher_at_the_same_moment_makes_no_second_restart(site: Site) -> None:
    site.submit("--restarts", "unlimited")
    site.until_kept(1)
    with Path("watch.output").open("wb") as output:
        watcher = commands.start("watch", "r1", stdout=output, stderr=output)
        site.reboot()
        site.until_started(2)
        verdict = site.end(2)
        code = watcher.wait(120)
    assert (verdict.outcome, verdict.attempt) == (runs.SUCCEEDED, 2)
    assert site.started == ["1/0", "2/0"]
    assert code == 0, Path("watch.output").read_text()
    assert [node.name.rpartition("/")[2] for node in site.simulator.world.nodes.all()] == ["n1"]


def reboot_leased(site: Site, bucket: Bucket, seconds: int) -> None:
    """Reboot the hosts of a run while a watcher has the lease of its second attempt."""
    site.submit("--restarts", "unlimited")
    site.until_kept(1)
    lease = Lease("r1", 2, secrets.token_hex(16), "ada@laptop", seconds)
    bucket.create(site.run.paths.lease(2), runs.encode(lease))
    site.reboot()


def test_hosts_leave_a_run_to_the_watcher_who_has_its_lease(site: Site, bucket: Bucket) -> None:
    reboot_leased(site, bucket, 3600)
    site.until(lambda: site.run.attempt(1).statuses()[0].is_finished, "the end of attempt 1")  # type: ignore[union-attr]
    record = msgspec.structs.replace(site.run.attempt(1).record, attempt=2, token="ada's")
    site.run.create_attempt(record)
    site.until_forgotten(1)
    assert site.started == ["1/0"]


@pytest.mark.slow
def test_hosts_take_over_from_a_watcher_who_died(site: Site, bucket: Bucket) -> None:
    reboot_leased(site, bucket, 1)
    site.until_started(2)
    assert site.end(2).outcome == runs.SUCCEEDED


@pytest.mark.parametrize("site", [1, SLOW_FOUR], indirect=True)
def test_a_run_that_was_cancelled_is_not_resumed(site: Site) -> None:
    site.submit("--restarts", "unlimited")
    site.until_kept(1)
    assert site.tpuctl("cancel", "r1", "--yes").code == 0
    site.until_forgotten(1)
    site.reboot()
    verdict = site.run.verdict()
    assert verdict
    assert verdict.outcome == runs.STOPPED
    assert all(listed.startswith("1/") for listed in site.started)


def test_a_tpu_that_somebody_stops_and_starts_resumes_nothing(site: Site) -> None:
    site.submit("--restarts", "unlimited")
    site.until_kept(1)
    assert site.tpuctl("stop", "n1", "--yes").code == 0
    assert site.tpuctl("start", "n1", "--yes").code == 0
    site.until_forgotten(1)
    assert site.started == ["1/0"]


def test_a_run_without_restarts_leaves_the_crontab_alone(site: Site) -> None:
    site.submit("--restarts", "0")
    assert site.end(1).outcome == runs.SUCCEEDED
    assert not (site.disk(0) / "crontab").exists()
    assert not (site.folder(0, 1) / "resume.json").exists()


def test_a_host_keeps_no_secret_and_submit_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdefghijklmnopqrstuvwx")
    said = site.submit("--restarts", "unlimited", "--secret", "HF_TOKEN")
    note = "resumes only while somebody watches it: hosts do not keep the value of HF_TOKEN"
    assert note in said.err
    assert site.end(1).outcome == runs.SUCCEEDED
    assert not (site.disk(0) / "crontab").exists()
