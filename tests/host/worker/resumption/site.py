"""A run with restarts on one or four simulated hosts, whose scripts say in a file that they have printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.control import is_held_in
from tpuctl.host.worker.records import FINISHED, LOCK_FILE
from tpuctl.polling import Backoff, poll
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
