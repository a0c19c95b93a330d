"""What a worker's program needs where it runs: a bundle, a spec, a folder and the environment of a host."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tpuctl import runs
from tpuctl.bucket_layout import RunPaths, bundle
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config.settings import load
from tpuctl.flows.runs.launch import worker_program
from tpuctl.polling import Backoff, poll
from tpuctl.worker.spec import Spec

BUCKET = "sim-project-tpuctl"


def tar(*members: tuple[tarfile.TarInfo | str, bytes]) -> bytes:
    """Return a .tar.gz of files (by name) and of whatever else a TarInfo says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def spec(**changes: Any) -> Spec:
    """Return the spec of the first worker of a run, with changes."""
    content: dict[str, Any] = {
        "bucket": BUCKET,
        "run": "r1",
        "attempt": 1,
        "worker": 0,
        "workers": 1,
        "tpu_uid": "77",
        "framework": "tensorflow",
        "script": "job.py",
        "arguments": [],
        "dependencies": [],
        "bundle": bundle("0" * 64),
        "bundle_sha256": "0" * 64,
        "folder": RunPaths("r1").worker(1, 0),
        "environment": {},
    }
    return Spec(**{**content, **changes})


@dataclass
class Host:
    """A folder on a simulated host, with everything that a program there finds in its environment."""

    environment: dict[str, str]
    folder: Path
    bucket: Bucket
    python: str = sys.executable
    spec: dict[str, Any] = field(default_factory=dict)

    def prepare(self, source: str, *, data: bytes | None = None, **changes: Any) -> Path:
        """Put bundle, spec and program where the launcher would; `data` replaces the bundle."""
        data = tar(("job.py", source.encode())) if data is None else data
        digest = hashlib.sha256(data).hexdigest()
        self.bucket.create(bundle(digest), data, "application/gzip")
        self.spec = {
            "schema": 1,
            **spec(bundle=bundle(digest), bundle_sha256=digest)._asdict(),
            **changes,
        }
        self.folder.mkdir(parents=True)
        (self.folder / "worker.zip").write_bytes(worker_program())
        path = self.folder / "spec.json"
        path.write_text(json.dumps(self.spec))
        return path

    def launch(self) -> subprocess.CompletedProcess[str]:
        """Call the program as the launcher does, over SSH."""
        command = [self.python, "worker.zip", "launch", "spec.json"]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def start(self, source: str, **changes: Any) -> int:
        """Prepare and launch, and return the supervisor's pid."""
        self.prepare(source, **changes)
        done = self.launch()
        assert done.returncode == 0, done.stdout + done.stderr
        return int(json.loads(done.stdout)["pid"])

    def supervise(self, source: str, constants: str, **changes: Any) -> subprocess.Popen[bytes]:
        """Start the detached part alone, as a child, with some constants of its modules changed."""
        self.prepare(source, **changes)
        code = (
            "from tpuctl.worker import gcs, logs, main, status, supervisor\n"
            f"{constants}\nmain.main(['supervise', 'spec.json'])"
        )
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        with (self.folder / "supervisor.log").open("wb") as diary:
            return subprocess.Popen(
                [self.python, "-c", code], cwd=self.folder, env=environment, stdout=diary, stderr=diary
            )

    def status(self) -> runs.WorkerStatus:
        """Return the status that stands in the bucket."""
        name = RunPaths("r1").status(1, 0)
        return runs.decode(self.bucket.read(name), runs.WorkerStatus, name)

    def finished(self) -> runs.WorkerStatus:
        """Wait for the last word."""
        return poll(
            lambda: self.status() if self.status().done else None,
            awaiting="the last word", timeout=60, backoff=Backoff(0.05, 0.2), hint=self.diary(),
        )  # fmt: skip

    def printed(self, text: bytes) -> None:
        """Wait until the script has printed something on its host."""
        log = self.folder / "log"
        poll(
            lambda: True if log.exists() and text in log.read_bytes() else None,
            awaiting=f"{text!r} in the log", timeout=30, backoff=Backoff(0.02, 0.1), hint=self.diary(),
        )  # fmt: skip

    def chunks(self) -> list[str]:
        """Return the names of the log's chunks in the bucket."""
        return [one.name for one in self.bucket.objects(RunPaths("r1").worker(1, 0) + "log/")]

    def log(self) -> bytes:
        """Return the log as it is in the bucket."""
        return b"".join(self.bucket.read(name) for name in self.chunks())

    def diary(self) -> str:
        """Return what the supervisor itself has said."""
        path = self.folder / "supervisor.log"
        return path.read_text() if path.exists() else ""


def environment_of(simulator: Any) -> dict[str, str]:
    """Return what a command over SSH finds in its environment on the only host there is."""
    from tpuctl.cloud.endpoints import Cloud

    cloud: Cloud = connect(load({}))
    try:
        found = cloud.tpu.nodes().nodes[0]
        with cloud.ssh.connect(found, 0, cloud.tpu.host_keys(found)[0]) as session:
            pairs = session.run(["env", "-0"]).out.split("\0")
    finally:
        cloud.close()
    return dict(pair.split("=", 1) for pair in pairs if pair)
