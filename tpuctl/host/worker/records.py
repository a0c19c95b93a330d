"""Defines the records that laptop and host share: spec, status, and names in a worker's folder."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import List, Mapping, NamedTuple, Optional, Sequence, TextIO, Tuple, Union

SCHEMA = 1

QUEUED = "queued"
PREPARING, READY, RUNNING, FINISHED = "preparing", "ready", "running", "finished"
"""States of a worker, in the order in which it passes through them; READY waits for the other workers."""
UNKNOWN = "unknown"
"""Stands for the state in a status that cannot be read; no worker writes it."""
MOST_CHARACTERS = 4000
"""Of a text in a status: readers refuse a status that is too long."""

PREEMPTION, MAINTENANCE, REBOOT = "preempted", "maintenance", "reboot"
OUT_OF_MEMORY, DISK_FULL = "out of memory", "disk full"
CHIPS_HELD, CHIPS_LOCKED = "chips held by another process", "chips refused for libtpu's lock file"
"""Causes of an end that a worker recognizes."""

IMAGE, OWN = "image", "own"
"""What is installed for a script keeps to the versions of the host's image, or is independent of them."""

SCRIPT, MODULE, SHELL, COMMAND, NOTEBOOK = "script", "module", "shell", "command", "notebook"
"""Kinds of programs: what `python FILE`, `python -m`, `bash FILE`, a command line or the cells of a notebook
start."""

PLACEHOLDERS = (
    "TPUCTL_RUN", "TPUCTL_ATTEMPT", "TPUCTL_WORKER", "TPUCTL_WORKERS", "TPUCTL_ACCELERATOR",
    "TPUCTL_DATA_DIR", "TPUCTL_MODEL_DIR", "TPUCTL_CHECKPOINT_DIR", "TPUCTL_TENSORBOARD_DIR",
    "TPUCTL_REPORT_DIR",
)  # fmt: skip
"""Variables that arguments can name in braces: programs that take a folder by a flag read no variable."""
PLACEHOLDER = re.compile(r"\{(TPUCTL_[A-Z_]+)\}")
CODE = "code"
"""The folder of the program inside an attempt's, on the host."""
CELLS_FILE, EXECUTED = "cells.py", "executed"
"""In the attempt's folder on the host: what runs a notebook, and the folder of the one with its outputs."""
ENTRY_FILE, ENTERED = "entry.json", "entered"
"""In the attempt's folder on the host: what `ssh --run` and `exec --run` start with, and their own folder."""
SETUP_TIMEOUT = 1800.0
"""Seconds that a set-up command may take, unless the user says otherwise."""

PROGRAM_FILE = "worker.zip"
"""The program in the attempt's folder on the host."""
STARTED = "started"
"""File in the attempt's folder on the host: the first status is in the bucket.

Has the supervisor's pid, and which attempt's it is."""
STARTED_BEFORE = "this attempt was started on this host before"
"""The answer to a second launch: the first one counts."""
FORBIDDEN = "forbidden"
"""The cause in an answer to a launch: the service account of the host may not write into the bucket."""
BUSY = "busy"
"""As FORBIDDEN: another run works on the host."""
LOCK_FILE = "lock"
"""File in the attempt's folder: `launch` creates it, the supervisor holds it as long as it lives."""
SCRIPT_LOCK_FILE = "script.lock"
"""File in the attempt's folder that the script holds, and what it forks, as long as one of them lives."""
STATUS_FILE = "status.json"
ENVIRONMENT_FILE = "environment.json"
"""In a worker's folder in the bucket: the Python and the packages that its script can import."""
LAUNCH_FILE = "launch.json"
"""In an attempt's folder in the bucket: written again and again while its workers are being started."""
STOP_FILE = "stop.json"
"""In a run's folder in the bucket, and in the attempt's folder on a host: somebody asks to stop the run."""
LARGEST_STOP = 4096
"""Most bytes of it."""
DEFAULT_GRACE, MOST_GRACE = 30, 3600
"""Seconds that a script has to save, after SIGTERM, before it is killed."""
MOST_LABEL = 256
"""Characters of a name of somebody."""
LOG_FOLDER = "log/"
REPORTS_FOLDER = "reports/"
"""Names inside a worker's folder in the bucket."""
PIECES = "tpuctl-pieces"
"""Metadata of an object of which several pieces of a log were made: which ones."""


def log_file(chunk: int) -> str:
    """Return the name of the chunk-th piece of a log inside the worker's folder, counted from 1."""
    return "%s%06d.log" % (LOG_FOLDER, chunk)


def ordered_log_file(time: str, worker: int, chunk: int) -> str:
    """Return the name of a piece of a worker's log inside the attempt's folder: names are in order of time.

    `time` is the bucket's, as 20260131T235959: listing the newest needs no listing of each worker.
    """
    return "%s%s-%04d-%06d.log" % (LOG_FOLDER, time, worker, chunk)


def python_archive(sha256: str) -> str:
    """Return the object that holds the interpreter with this hash, as a tar.gz with one folder."""
    return "pythons/%s.tar.gz" % sha256


ORDERED_LOG = re.compile(r"[0-9]{8}T[0-9]{6}-([0-9]{4})-(?!0{6})([0-9]{6})\.log")
"""What `ordered_log_file` gives, without the folder: time, worker, number."""


class Piece(NamedTuple):
    """A piece of a log that was joined with those behind it: the object has the name of the first."""

    file: str
    """The name that it had, without the folder."""
    generation: int
    size: int
    """Bytes."""
    updated: str
    """When it was written: ISO-8601, UTC."""


def pieces_text(pieces: Sequence[Piece]) -> str:
    """Return what the metadata PIECES of a joined object say: all of its pieces, in order."""
    return ",".join("%s %d %d %s" % piece for piece in pieces)


def read_pieces(text: str, file: str, size: int) -> List[Piece]:
    """Return the pieces that the metadata of an object of so many bytes say; empty unless they make it up."""
    entries, first = [_PIECE.match(entry) for entry in text.split(",")], ORDERED_LOG.fullmatch(file)
    pieces = [Piece(match[1], int(match[2]), int(match[3]), match[4]) for match in entries if match]
    if not first or len(pieces) < len(entries) or pieces[0].file != file:
        return []
    is_whole = all(
        piece.file.endswith("-%s-%06d.log" % (first[1], number))
        for number, piece in enumerate(pieces, int(first[2]))
    )
    return pieces if is_whole and sum(piece.size for piece in pieces) == size else []


_PIECE = re.compile(
    r"([0-9]{8}T[0-9]{6}-[0-9]{4}-[0-9]{6}\.log) ([0-9]{1,19}) ([0-9]{1,12}) ([0-9T:-]{19}Z)\Z"
)


def attempt_folder(folder: str) -> str:
    """Return the folder of the attempt whose worker has this `folder`, both with a trailing slash."""
    return folder[: folder.rindex("workers/")]


@dataclass(frozen=True)
class Resumption:
    """How a run goes on by itself after a reboot of its hosts."""

    restarts: int
    """So often after the loss of an attempt; -1 without end."""
    line: str
    """Folder of the bucket that says what was submitted to the node, with a trailing slash."""
    others: Sequence[str] = ()
    """Those folders of the other slices, where the run spans several."""
    lost_at_once: int = 0
    """Attempts in a row before this one that a reboot without notice has ended at once."""


@dataclass(frozen=True)
class Spec:
    """spec.json, on the host only: one worker's part of one attempt of a run; may hold secrets.

    The file is deleted before the script starts.
    """

    bucket: str
    run: str
    attempt: int
    worker: int
    workers: int
    """Hosts of the slice, also those that do not run the script."""
    tpu_uid: str
    framework: str
    script: str
    """Path of a script or a notebook inside the bundle; name of a module, or of a command."""
    arguments: Sequence[str]
    dependencies: Sequence[str]
    """Requirements as in PEP 508."""
    bundle: str
    """Object that holds the code."""
    bundle_sha256: str
    bundle_size: int
    """Bytes of the bundle."""
    unpacked_size: int
    """Most bytes that it may unpack to."""
    folder: str
    """This worker's folder in the bucket, with a trailing slash."""
    key: str
    """Secret of this attempt, never in the bucket: seals the statuses of its supervisors."""
    environment: Mapping[str, str]
    """Variables that the script gets on top of the host's own."""
    stored: Sequence[str] = ()
    """Those whose values are no secret, as the bucket has them; only the run's processes have the others."""
    requires_python: str = ""
    """Versions of Python as in PEP 440; empty for any."""
    requirements: str = ""
    """Path of a lock file inside the bundle, in pip's format with hashes; empty for none."""
    packages: str = IMAGE
    """IMAGE or OWN."""
    participants: Sequence[int] = ()
    """The workers that run the script: they start together and end together. Empty for this one alone."""
    line: str = ""
    """Folder of the bucket that says what was submitted to the node: this one waits for what was before it.

    Empty for one that waits for nothing.
    """
    line_timeout: float = 0.0
    """Seconds for which it waits there; 0 for no limit."""
    wheelhouse: str = ""
    """Folder inside the bundle that packages come from alone; empty for the host's own index."""
    setup: str = ""
    """Command for sh that runs before the script, in its folder; empty for none."""
    setup_timeout: float = SETUP_TIMEOUT
    """Seconds that it may take."""
    resumption: Optional[Resumption] = None
    """None for a run that is not started again, or only with values that its hosts do not keep."""
    chips: int = 0
    """Of each host, which the script waits for; 0 for an unknown number."""
    pins: Sequence[str] = ()
    """Versions that packages have to have, also where the image has another: `numpy==1.26.4`."""
    choice: str = ""
    """Why `dependencies` are other than the script's own, for the log; empty where they are not."""
    token: str = ""
    """That of the attempt's record: it tells this run from another one of the same name."""
    constraints: Sequence[str] = ()
    """Requirements that hold for a package if it is installed."""
    sources: Sequence[str] = ()
    """Where packages come from besides the host's own index: `--extra-index-url https://...`."""
    python: str = ""
    """Version of Python that runs the script, such as `3.12`; empty for any that it requires."""
    python_archives: Mapping[str, str] = field(default_factory=dict)
    """Interpreters that the bucket has: version -> SHA-256 of the archive."""
    kind: str = SCRIPT
    """SCRIPT, MODULE, SHELL, COMMAND or NOTEBOOK."""
    directory: str = ""
    """Working folder inside the bundle; empty for its own."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class WorkerStatus:
    """status.json in the bucket: written by the program on the host, under generation preconditions."""

    worker: int
    attempt: int
    tpu_uid: str
    state: str
    """QUEUED, PREPARING, READY, RUNNING or FINISHED."""
    heartbeat: str
    """When the status was written; all times are ISO-8601, UTC."""
    started: str = ""
    """When it left the line of its TPU, or without one began; empty in the line."""
    finished: str = ""
    pid: int = 0
    """The script's process on the host; 0 before it runs, and where that was never noted."""
    has_unnoted_script: bool = False
    """Whether the script has run although its process was never noted: who started it was killed."""
    exit_code: Optional[int] = None
    signal: str = ""
    """The signal that ended the script."""
    error: str = ""
    """Why the script did not start or was not watched to its end; empty for a failure of its own."""
    stopped: str = ""
    """The signal that stopped the supervisor: the host was preempted, deleted or shut down."""
    stopped_by: str = ""
    """The account that asked to stop the run, if the script was stopped for that."""
    ahead: int = 0
    """Runs that a QUEUED worker waits for."""
    cause: str = ""
    """PREEMPTION, MAINTENANCE or REBOOT of a stopped host; else one of the others above."""
    tail: str = ""
    """The last line that a failed script printed."""
    peer: Optional[int] = None
    """The worker whose end ended this one: nothing here failed by itself."""
    log_chunks: int = 0
    quiet: Optional[int] = None
    """Seconds before `heartbeat` in which the script has printed nothing; None while none runs."""
    has_no_chip: bool = False
    """Whether the script has held no TPU chip for minutes, as a look at all of its processes has shown."""
    token: str = ""
    """That of the attempt's record; empty in those of earlier versions."""
    supervisor: str = ""
    """Which process wrote it: a random name."""
    seal: str = ""
    """HMAC-SHA256 of the object's name and the supervisor, with the attempt's key."""
    refusal: str = ""
    """Why the bucket does not take this last word, as `403 ...`; on the host's disk only."""
    schema: int = SCHEMA

    @property
    def has_run(self) -> bool:
        """Whether the script has been started."""
        return bool(self.pid) or self.has_unnoted_script

    @property
    def is_finished(self) -> bool:
        """Whether the script has ended and its log is complete."""
        return self.state == FINISHED


@dataclass(frozen=True)
class StopRequest:
    """stop.json: somebody asks to stop the run, in whatever attempt it is."""

    run: str
    by: str
    """The account that asks."""
    requested: str
    """ISO-8601, UTC, by the bucket's clock."""
    grace: int = DEFAULT_GRACE
    """Seconds between SIGTERM and SIGKILL."""
    schema: int = SCHEMA


def encode(record: Union[Spec, WorkerStatus, StopRequest]) -> bytes:
    """Return a record as indented JSON, for people who look into the bucket; a long error loses its end."""
    if isinstance(record, WorkerStatus):
        record = replace(record, error=record.error[:MOST_CHARACTERS])
    return json.dumps(asdict(record), indent=2).encode() + b"\n"


def status_type(status: WorkerStatus) -> str:
    """Return the content type of a status: a listing tells by it whether the status has to be read.

    It has a checksum of what the status says besides that it is written again, and the chunks of the log.
    """
    said = encode(replace(status, heartbeat="", log_chunks=0, quiet=None))
    return "application/json; word=%08x; chunks=%d" % (zlib.crc32(said), status.log_chunks)


def read_status_type(text: str) -> Optional[Tuple[str, int]]:
    """Return checksum and number of chunks in a status's content type; None for any other type."""
    match = _STATUS_TYPE.match(text)
    return (match.group(1), int(match.group(2))) if match else None


_STATUS_TYPE = re.compile(r"application/json; word=([0-9a-f]{8}); chunks=([0-9]{1,9})\Z")


def read_spec(stream: TextIO) -> Spec:
    """Return the spec in a stream; raises ValueError for another schema or a missing field.

    Fields that this version does not know are skipped.
    """
    try:
        content = json.load(stream)
    except RecursionError:
        raise ValueError("spec.json is nested too deep") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError("spec.json is not of schema %d" % SCHEMA)
    values = {field.name: content[field.name] for field in fields(Spec) if field.name in content}
    try:
        if values.get("resumption"):
            resumption = values["resumption"]
            others = tuple(resumption.get("others", ()))
            values["resumption"] = Resumption(**{**resumption, "others": others})
        return Spec(**values)
    except (AttributeError, TypeError) as error:  # or where a table is expected, there is none
        raise ValueError("spec.json is not complete: %s" % error) from None


def check_stop(request: StopRequest, run: str) -> None:
    """Raise ValueError for a request of another run, or with a value that none has."""
    if request.run != run:
        raise ValueError("it is of another run")
    if not 0 < len(request.by) <= MOST_LABEL:
        raise ValueError("it does not say who asks")
    if not 0 <= request.grace <= MOST_GRACE:
        raise ValueError("its grace is not of 0 to %d seconds" % MOST_GRACE)


def read_stop(data: bytes, run: str) -> StopRequest:
    """Return the request to stop `run`; raises ValueError for anything else: anybody may have written it."""
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError("it is not of schema %d" % SCHEMA)
    values = [content.get(name) for name in ("run", "by", "requested", "grace")]
    if [type(value) for value in values] != [str, str, str, int]:
        raise ValueError("it is not complete")
    request = StopRequest(*values)  # type: ignore[arg-type]  # checked above
    check_stop(request, run)
    return request


def identity(key: str) -> str:
    """Return what the file STARTED has of an attempt's key: runs of one name, one after the other, differ."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


INSTALLED = ".tpuctl"
"""Folder in the code by which the project's own packages are installed: dist-info, paths of modules."""
