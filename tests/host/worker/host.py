"""A host for the worker's program: a bundle, a spec, a folder, and the environment of a simulated host."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.paths import ROOT
from tpuctl import runs
from tpuctl.atomic_files import PRIVATE, replace_file
from tpuctl.bucket_layout import RunPaths, bundle
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.submission.launch import worker_program
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.records import STOP_FILE, Spec, StopRequest, WorkerStatus, encode
from tpuctl.polling import Backoff, poll

BUCKET = "sim-project-tpuctl"


def tar(*members: tuple[tarfile.TarInfo | str, bytes]) -> bytes:
    """Return a .tar.gz of files (by name) and of other TarInfos."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


SPEC = Spec(
    bucket=BUCKET,
    run="r1",
    attempt=1,
    worker=0,
    workers=1,
    tpu_uid="77",
    framework="tensorflow",
    script="job.py",
    arguments=[],
    dependencies=[],
    bundle=bundle("0" * 64),
    bundle_sha256="0" * 64,
    bundle_size=0,
    unpacked_size=1_000_000,
    key="k" * 64,
    folder=RunPaths("r1").worker(1, 0),
    environment={},
)
"""The first worker of a run."""


SUPERVISE = """
import os, sys
from tpuctl.host.worker.control import first_lock
with open("spec.json", "rb") as spec, open("supervisor.log", "ab") as log, first_lock("."):
    sys.exit(main.supervise_detached(spec, log, os.getcwd()))
"""
"""What a launch does after its fork."""


@dataclass
class Host:
    """A folder on a simulated host, with everything that a program there finds in its environment."""

    environment: dict[str, str]
    folder: Path
    bucket: Bucket
    python: str = sys.executable
    worker: int = 0

    def prepare(self, source: str, *, data: bytes | None = None, **changes: object) -> Path:
        """Write bundle, spec and program where `submit` would; `data` replaces the bundle."""
        data = tar(("job.py", source.encode())) if data is None else data
        digest = hashlib.sha256(data).hexdigest()
        self.bucket.create(bundle(digest), data, "application/gzip")
        code = {"bundle": bundle(digest), "bundle_sha256": digest, "bundle_size": len(data)}
        place = {"worker": self.worker, "folder": RunPaths("r1").worker(1, self.worker)}
        spec = replace(SPEC, **{**code, **place, **changes})
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "worker.zip").write_bytes(worker_program())
        path = self.folder / "spec.json"
        path.write_bytes(encode(spec))
        return path

    def launch(self, constants: str = "") -> subprocess.CompletedProcess[str]:
        """Call the program as `submit` does over SSH, after the statements `constants`."""
        code = (
            "import sys\nsys.path[0] = sys.argv[0] = 'worker.zip'\n"
            "from tpuctl.host import timing\nfrom tpuctl.host.worker import main\n"
            f"{constants}\nsys.exit(main.main(['launch', 'spec.json']))"
        )
        # the last word is for `supervisors`, which looks for it
        program = ["-c", code, "launch"] if constants else ["worker.zip", "launch", "spec.json"]
        return subprocess.run(
            [self.python, *program],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def ask(self) -> dict[str, object]:
        """Ask the program, as readers of a run do over SSH."""
        command = [self.python, "worker.zip", "ask", "."]
        answer = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, check=True
        )
        return dict(json.loads(answer.stdout))

    def supervisors(self) -> list[int]:
        """Return the pids of the supervisors that run in the attempt's folder."""
        pids = list[int]()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                leads = os.getsid(int(process.name)) == int(process.name)  # `launch` itself leads no session
                if b"launch" in words and leads and (process / "cwd").readlink() == self.folder:
                    pids.append(int(process.name))
            except OSError:  # it has ended, or is another user's
                pass
        return pids

    def start(self, source: str, **changes: object) -> int:
        """Prepare and launch, and return the supervisor's pid."""
        self.prepare(source, **changes)
        process = self.launch()
        assert process.returncode == 0, process.stdout + process.stderr
        return int(json.loads(process.stdout)["pid"])

    @contextmanager
    def supervise(self, source: str, constants: str, **changes: object) -> Iterator[subprocess.Popen[bytes]]:
        """Start guard and supervisor as a child, after the statements `constants`; wait for their end.

        A block that fails kills them, with the script.
        """
        self.prepare(source, **changes)
        imports = "from tpuctl.host import timing\nfrom tpuctl.host.worker import main, supervisor"
        code = f"{imports}\n{constants}\n{SUPERVISE}"
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        with (self.folder / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                [self.python, "-c", code], cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        try:
            yield process
            process.wait(120)
        finally:
            if process.poll() is None:
                descendants = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                process.wait()
                for descendant in descendants:  # the script outlives a supervisor that is killed
                    with suppress(psutil.NoSuchProcess):
                        descendant.kill()

    def ask_to_stop(self, request: StopRequest) -> None:
        """Ask the worker to stop by a file that is whole from the first, as `cancel` does."""
        replace_file(self.folder / STOP_FILE, [encode(request)], mode=PRIVATE)

    def status(self) -> WorkerStatus:
        """Return the status in the bucket."""
        name = RunPaths("r1").status(1, self.worker)
        return runs.decode(self.bucket.read(name), WorkerStatus, name)

    def find_status(self) -> WorkerStatus | None:
        """Return the status in the bucket; None before the first."""
        return self.status() if self.bucket.stat(RunPaths("r1").status(1, 0)) else None

    def finished(self) -> WorkerStatus:
        """Wait for the last status and return it."""
        return poll(
            lambda: status if (status := self.status()).is_finished else None,
            awaiting="the last status", timeout=120, backoff=Backoff(0.05, 0.2), hint=self.supervisor_log(),
        )  # fmt: skip

    def wait_for_output(self, text: bytes) -> None:
        """Wait until the script has printed `text` on its host."""
        log = self.folder / "log"
        poll(
            lambda: True if log.exists() and text in log.read_bytes() else None,
            awaiting=f"{text!r} in the log",
            timeout=120,
            backoff=Backoff(0.02, 0.1),
            hint=self.supervisor_log(),
        )

    def chunks(self) -> list[str]:
        """Return the names of the log's chunks in the bucket."""
        return [chunk.name for chunk in self.bucket.objects(RunPaths("r1").ordered_logs(1))]

    def log(self) -> bytes:
        """Return the log as it is in the bucket."""
        return b"".join(self.bucket.read(name) for name in self.chunks())

    def supervisor_log(self) -> str:
        """Return the supervisor's own log."""
        path = self.folder / "supervisor.log"
        return path.read_text() if path.exists() else ""


def ssh_environment() -> dict[str, str]:
    """Return the environment of a command over SSH on worker 0 of the only node."""
    cloud = connect(load({}))
    try:
        node = cloud.provider.list_nodes().nodes[0]
        with cloud.ssh.connect(node, 0, cloud.provider.host_keys(node.id)[0]) as session:
            pairs = session.run(["env", "-0"]).stdout.split("\0")
    finally:
        cloud.close()
    return dict(pair.split("=", 1) for pair in pairs if pair)


def kill_with_guard(supervisor: int) -> None:
    """Kill a supervisor and what watches it, so that nobody on its host says how its script ends."""
    guard = processes.running()[supervisor].parent
    both = [psutil.Process(pid) for pid in (guard, supervisor)]
    for process in both:
        process.kill()
    # either holds the attempt's lock until the kernel has ended it
    poll(
        lambda: all(map(_has_ended, both)) or None,
        awaiting="the end of the guard", timeout=60, backoff=Backoff(0.02, 0.1),
    )  # fmt: skip


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process has let go of its files; nobody may have collected its exit status."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
