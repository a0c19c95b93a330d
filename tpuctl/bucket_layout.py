"""Names the objects of datasets and runs in the bucket; every machine uses the same layout."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.errors import UsageError
from tpuctl.host.keeper.records import deletions_folder, node_folder
from tpuctl.host.worker.records import (
    ENVIRONMENT_FILE,
    LAUNCH_FILE,
    LOG_FOLDER,
    STATUS_FILE,
    STOP_FILE,
    log_file,
)
from tpuctl.nodes import NodeId

ATTEMPT_FOLDER = re.compile(r"[1-9][0-9]{0,3}")
LOG_CHUNK = re.compile(r"(?!0{6})[0-9]{6}\.log")
"""Names that tpuctl gives; what else lies beside them is not its own."""
BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
DATASETS = "datasets/"
RUNS = "runs/"
RUN_ON_NODE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([1-9][0-9]{0,3})\.json")
"""What lies in a node's folder of runs: a run and an attempt."""
STATUSES = "attempts/*/workers/*/status.json"
"""Glob of the statuses in a run's folder."""
STATUS_OF_RUN = re.compile(
    r"runs/([a-z0-9][a-z0-9-]{0,62})/attempts/([1-9][0-9]{0,3})/workers/(0|[1-9][0-9]{0,3})/status\.json"
)
"""Name of a worker's status: run, attempt, worker."""


def gs(bucket: str, name: str) -> str:
    """Return the `gs://` form of an object's or a folder's name."""
    return f"gs://{bucket}/{name}"


def split_gs(uri: str) -> tuple[str, str]:
    """Return the bucket and the name of a `gs://` URI; raises UsageError where it names no bucket."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    if not uri.startswith("gs://") or not BUCKET_NAME.fullmatch(bucket):
        raise UsageError(
            f"'{uri}' names no bucket.", hint="Give gs://BUCKET/FOLDER, or gs://BUCKET/OBJECT.", source=uri
        )
    return bucket, name


def bundle(sha256: str) -> str:
    """Return the object that holds the code with this hash."""
    return f"bundles/{sha256}.tar.gz"


def chunk_number(name: str) -> int:
    """Return which piece of a log an object is, counted from 1; `RunPaths.log` gives its name."""
    return int(name.rpartition("/")[2].partition(".")[0])


@dataclass(frozen=True)
class NodePaths:
    """Names of the objects about one node, without the bucket; the uid tells it from others of its name."""

    project: str
    zone: str
    name: str
    uid: str

    @property
    def folder(self) -> str:
        return node_folder(self.project, self.zone, self.name, self.uid)

    @property
    def runs(self) -> str:
        """The folder that says which runs were started on it, with a trailing slash."""
        return f"{self.folder}runs/"

    @property
    def keeper(self) -> str:
        """The folder of what its keeper did, with a trailing slash."""
        return deletions_folder(self.project, self.zone, self.name, self.uid)

    def run(self, run: str, attempt: int) -> str:
        """Return the object that says that an attempt of a run was started on it."""
        return f"{self.runs}{run}/{attempt}.json"

    @classmethod
    def of(cls, node: NodeId) -> NodePaths:
        """Return where the bucket has what it knows of a node."""
        return cls(node.project, node.zone, node.name, node.uid)

    @classmethod
    def parse(cls, folder: str) -> NodePaths | None:
        """Return what a folder's name directly below NODES is about; None for any other name."""
        match folder.rsplit(".", 3):
            case [project, zone, name, uid] if project and zone and name and uid:
                return cls(project, zone, name, uid)
        return None


@dataclass(frozen=True)
class RunPaths:
    """Names of one run's objects, without the bucket."""

    run: str

    @property
    def folder(self) -> str:
        return f"{RUNS}{self.run}/"

    @property
    def record(self) -> str:
        return f"{self.folder}run.json"

    @property
    def verdict(self) -> str:
        return f"{self.folder}verdict.json"

    @property
    def notes(self) -> str:
        """Return the object with the tags and notes of people."""
        return f"{self.folder}notes.json"

    @property
    def stop(self) -> str:
        """Return the object by which somebody asks to stop the run."""
        return f"{self.folder}{STOP_FILE}"

    @property
    def results(self) -> str:
        """Return the record of its results by checksum, once it has ended."""
        return f"{self.folder}results.json"

    @property
    def checkpoints(self) -> str:
        return f"{self.folder}checkpoints/"

    @property
    def tensorboard(self) -> str:
        return f"{self.folder}tensorboard/"

    @property
    def outputs(self) -> str:
        return f"{self.folder}outputs/"

    @property
    def attempts(self) -> str:
        return f"{self.folder}attempts/"

    def attempt(self, attempt: int) -> str:
        """Return the record of one attempt."""
        return f"{self.attempts}{attempt}/attempt.json"

    def attempt_folder(self, attempt: int) -> str:
        """Return the folder of one attempt, with a trailing slash."""
        return f"{self.attempts}{attempt}/"

    def attempt_verdict(self, attempt: int) -> str:
        """Return the record of how one attempt of several ended."""
        return f"{self.attempts}{attempt}/verdict.json"

    def launch(self, attempt: int) -> str:
        """Return the object that is written while the workers of an attempt are being started."""
        return f"{self.attempts}{attempt}/{LAUNCH_FILE}"

    def lease(self, attempt: int) -> str:
        """Return the record of who starts an attempt."""
        return f"{self.attempts}{attempt}/lease.json"

    def worker(self, attempt: int, worker: int) -> str:
        """Return the folder of one worker in one attempt, with a trailing slash."""
        return f"{self.attempts}{attempt}/workers/{worker}/"

    def status(self, attempt: int, worker: int) -> str:
        """Return the object with a worker's status and heartbeat."""
        return f"{self.worker(attempt, worker)}{STATUS_FILE}"

    def environment(self, attempt: int, worker: int) -> str:
        """Return the record of the packages that a worker's script can import."""
        return f"{self.worker(attempt, worker)}{ENVIRONMENT_FILE}"

    def logs(self, attempt: int, worker: int) -> str:
        """Return the folder with the chunks of a worker's log, with a trailing slash."""
        return f"{self.worker(attempt, worker)}{LOG_FOLDER}"

    def ordered_logs(self, attempt: int) -> str:
        """Return the folder with the chunks of all workers' logs in order of time, with a trailing slash."""
        return f"{self.attempts}{attempt}/{LOG_FOLDER}"

    def log(self, attempt: int, worker: int, chunk: int) -> str:
        """Return the object with the chunk-th piece of a worker's log, counted from 1."""
        return f"{self.worker(attempt, worker)}{log_file(chunk)}"
