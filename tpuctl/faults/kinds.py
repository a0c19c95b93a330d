"""The one table of the kinds of faults: name, what happens, options, and an example.

The command line, scenario files, code and docs/faults.md are all made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.errors import UsageError, nearest
from tpuctl.faults.fields import Field

CODES = (
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""google.rpc.Code by name, from 1 on."""

HTTP_ERRORS = ("400", "401", "403", "404", "408", "412", "429", "500", "502", "503", "504")
OPERATIONS = (
    "CreateNode", "DeleteNode", "UpdateNode", "StopNode", "StartNode", "SimulateMaintenanceEvent",
    "PerformMaintenance",
)  # fmt: skip
"""Methods whose long-running operation on a node can be told how to end."""
FAILING = (*OPERATIONS, "CreateQueuedResource")
"""Those that can be told to fail late."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    section: str
    """The part of the simulator that acts on it."""
    help: str
    """One line: what a client sees."""
    fields: tuple[Field, ...]
    example: str
    """Options of a command that asks for one."""
    note: str = ""
    """What else to know: how it is done, what it cannot show."""
    stays: bool = False
    """Whether it goes on working on those it has taken once its count is used up."""
    count: int | None = None
    """How often it works unless told otherwise; None: until it is removed."""

    def field(self, name: str) -> Field | None:
        """Return the option of that name, the limits that every kind has included."""
        return next((one for one in (*self.fields, *LIMITS) if one.name == name), None)


LIMITS = (
    Field("count", "count", "how often it works, or on how many; without, until it is removed"),
    Field("skip", "number", "how many that fit are let off first", 0),
    Field("after", "seconds", "when it begins, counted from when it was asked for", 0.0),
    Field("duration", "seconds", "how long it lasts from then on"),
    Field("probability", "fraction", "how likely it works on each that fits", 1.0),
    Field(
        "seed", "number", "of the numbers that decide by probability: the same seed, the same decisions", 0
    ),
)
"""Options of every kind."""

_ZONE = Field("zone", "pattern", "zones it is about", "*")
_PROJECT = Field("project", "pattern", "projects it is about", "*")
_TYPE = Field("type", "pattern", "accelerator types it is about, such as v3-8", "*")
_NODE = Field("node", "pattern", "nodes it is about, by id or full name", "*")
_WORKER = Field("worker", "pattern", "workers it is about, by number", "*")
_RESOURCE = Field(
    "resource",
    "pattern",
    "full names or last parts of them; in storage BUCKET/OBJECT",
    "*",
)
_METHOD = Field("method", "pattern", "methods: CreateNode, tpu.List*, storage.objects.get ...", "tpu.*")
_WHEN = Field(
    "when", "choice", "before: nothing is done; after: all is done and only the answer is lost", "before",
    ("before", "after"),
)  # fmt: skip
_BEGINS = "methods that begin an operation: {}"
_OPERATION = Field("method", "pattern", _BEGINS.format(", ".join(OPERATIONS)), "CreateNode")
_ONE_OPERATION = (_OPERATION, _RESOURCE, _ZONE, _TYPE)
_ANSWER = (_METHOD, _RESOURCE, _PROJECT, _ZONE, _WHEN)

_TRIGGERS = (
    Field("age", "seconds", "not before the node has been READY for so long", 0.0),
    Field("run", "glob", "runs to watch; only the node of a run that shows the step is meant"),
    Field("step", "number", "not before the run's log ('step 120') or a checkpoint's name shows this step"),
    Field("log", "regex", "not before a line of the run's log matches"),
)
"""When a fault of a node or a host comes."""

_NODES = (_NODE, _ZONE, _TYPE, *_TRIGGERS)
_HOSTS = (_NODE, _ZONE, _TYPE, _WORKER, *_TRIGGERS)

_STORED = (
    Field(
        "method",
        "pattern",
        "methods: storage.objects.get, storage.objects.*, storage.* ...",
        "storage.*",
    ),
    Field("bucket", "pattern", "buckets it is about", "*"),
    Field("object", "pattern", "names of objects it is about", "*"),
)
_BODIES = "the body of an upload (storage.objects.create) or of a download (storage.objects.get)"

API, NODES, HOSTS, STORAGE = "Cloud TPU API", "Nodes", "Hosts", "Cloud Storage"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "stockout", API,
            "A create is accepted and its operation ends in RESOURCE_EXHAUSTED: no more capacity.",
            (_ZONE, _TYPE, _RESOURCE, Field("reserved", "flag", "say so of a reservation", False)),
            "--zone europe-west4-a --type v3-8 --count 2",
            "The node is CREATING and then gone; a queued resource goes back to WAITING_FOR_RESOURCES. "
            "Starting a stopped node meets it, too.",
        ),
        Kind(
            "quota", API,
            "A create is refused at once with RESOURCE_EXHAUSTED and a QuotaFailure.",
            (
                _PROJECT, _ZONE, _TYPE,
                Field("quota", "pattern", "quota ids it is about", "*PerProjectPerZoneForTPUAPI"),
                Field("limit", "number", "cores (chips of v5e and v6e) there may be; 0 was never granted", 0),
            ),
            "--zone europe-west4-a --limit 8",
            "What is there already counts, also queued resources that wait: with a limit of 8 the first v3-8 "
            "is created and the second refused.",
        ),
        Kind(
            "api-off", API,
            "Every call is refused with PERMISSION_DENIED: the API is not enabled (SERVICE_DISABLED).",
            (_PROJECT, Field("api", "pattern", "which API is off: tpu, storage, * for both", "tpu")),
            "--project sim-project",
            "Requests to Cloud Storage name no project: with api=storage leave the project out.",
        ),
        Kind(
            "permission", API,
            "Calls are refused with PERMISSION_DENIED that names the missing permission.",
            (_METHOD, _RESOURCE, _PROJECT, _ZONE),
            "--method CreateNode",
            "With a method of storage.* it is Cloud Storage that refuses.",
        ),
        Kind(
            "zone-denied", API,
            "Calls to a zone are refused with PERMISSION_DENIED (LOCATION_POLICY_VIOLATED).",
            (Field("zone", "pattern", "zones it is about", required=True), _PROJECT),
            "--zone us-central2-b",
        ),
        Kind(
            "unreachable", API,
            "Lists over all zones name the zone as unreachable; calls to it fail with UNAVAILABLE.",
            (Field("zone", "pattern", "zones it is about", required=True), _PROJECT),
            "--zone us-central1-b",
        ),
        Kind(
            "unavailable", API,
            "Calls of a method fail with UNAVAILABLE, before or after they took effect.",
            _ANSWER, "--method CreateNode --when after --count 1",
        ),
        Kind(
            "deadline-exceeded", API,
            "Calls of a method fail with DEADLINE_EXCEEDED, before or after they took effect.",
            _ANSWER, "--method 'tpu.*' --count 3",
        ),
        Kind(
            "error", API,
            "Calls of a method fail with any code, text and reason, before or after they took effect.",
            (
                Field("method", "pattern", _METHOD.help, required=True),
                Field("code", "choice", "code of the error", "INTERNAL", CODES),
                Field("message", "text", "its text", "The simulator was asked to fail."),
                Field("reason", "text", "reason in its ErrorInfo", ""),
                Field("metadata", "pairs", "of its ErrorInfo; quota_limit makes it a QuotaFailure", {}),
                _RESOURCE, _PROJECT, _ZONE, _WHEN,
            ),
            "--method GetNode --code ABORTED --count 1",
            "In storage the code becomes the HTTP status that Cloud Storage has for it.",
        ),
        Kind(
            "slow-operation", API,
            "An operation takes longer by so many seconds.",
            (*_ONE_OPERATION, Field("seconds", "seconds", "how much longer", 60.0)),
            "--method CreateNode --seconds 5m --count 1",
        ),
        Kind(
            "stuck-operation", API,
            "An operation does not end while the fault is there, and goes on when it is removed.",
            _ONE_OPERATION, "--method CreateNode --zone us-central2-b", stays=True,
        ),
        Kind(
            "failed-operation", API,
            "A call is accepted and its operation fails late; the node is as it was, or gone if it was new.",
            (
                Field("method", "pattern", _BEGINS.format(", ".join(FAILING)), "CreateNode"),
                *_ONE_OPERATION[1:],
                Field("code", "choice", "code of the error", "INTERNAL", CODES),
                Field("message", "text", "its text", "The simulator was asked to fail."),
                Field("reason", "text", "reason in its ErrorInfo", ""),
                Field("metadata", "pairs", "of its ErrorInfo; quota_limit makes it a QuotaFailure", {}),
                Field("seconds", "seconds", "how long it takes to fail; without, as long as failures do"),
            ),
            "--method DeleteNode --code INTERNAL --count 1",
        ),
        Kind(
            "preemption", NODES,
            "A READY node is taken back: notice on its hosts, SIGTERM, then PREEMPTED until it is deleted.",
            (*_NODES, Field("notice", "seconds", "from the notice on the hosts to their end", 0.0)),
            "--run 'digits-*' --step 200 --notice 10", count=1,
        ),
        Kind(
            "maintenance-notice", NODES,
            "A worker's metadata server announces maintenance; the node shows upcoming_maintenance.",
            (*_NODES, Field("worker", "number", "the worker that is told", 0)),
            "--node n1", count=1,
        ),
        Kind(
            "maintenance", NODES,
            "A node is REPAIRING while its hosts go down and come up again, disks kept.",
            (*_NODES, Field("notice", "seconds", "announce it so long before; 0: not at all", 0.0)),
            "--node n1 --notice 30", count=1,
        ),
        Kind(
            "host-hang", HOSTS,
            "A host accepts connections and says nothing; its programs stand still, and go on afterwards.",
            _HOSTS, "--node n1 --worker 1 --duration 2m",
            "Programs get SIGSTOP and SIGCONT. The API goes on saying READY.", stays=True,
        ),
        Kind(
            "host-death", HOSTS,
            "A host dies: its programs are gone and nothing there answers, until the fault is removed.",
            _HOSTS, "--node n1 --worker 3",
            "Programs get SIGKILL. Removing it boots the host, with its disk and without its programs. What "
            "connects is accepted by this machine's kernel and then hears nothing; a real one times out.",
            stays=True,
        ),
        Kind(
            "network-loss", HOSTS,
            "A host loses its network: its programs go on, but neither SSH nor any service answers.",
            _HOSTS, "--node n1 --duration 30s",
            "SSH, the host's metadata server, and the simulator's proxy, Cloud Storage and APIs for programs "
            "of this host go silent; their connections are cut. Whose one is, is read from /proc: on "
            "macOS only SSH and metadata go. Connections between hosts go on, and those past the proxy.",
            stays=True,
        ),
        Kind(
            "ssh-refused", HOSTS,
            "A host refuses new SSH connections (connection refused); those that are open stay.",
            _HOSTS, "--node n1 --duration 20s", stays=True,
        ),
        Kind(
            "wrong-host-key", HOSTS,
            "A host's SSH server shows another key than the one its guest attributes publish.",
            _HOSTS, "--node n1", stays=True,
        ),
        Kind(
            "disk-full", HOSTS,
            "A host's disk takes no more bytes: SFTP, SCP and programs fail to write.",
            _HOSTS, "--node n1 --worker 0",
            "SFTP and SCP fail; a Python program that makes a file or folder below its host's home or tmp "
            "gets ENOSPC. Files that are open already, and programs other than Python, meet a limit of the "
            "kernel on the size of files instead (Linux only), wherever they write: the write fails with "
            "EFBIG, or SIGXFSZ ends the program.",
            stays=True,
        ),
        Kind(
            "gcs-error", STORAGE,
            "Requests are answered with an HTTP error, before or after they took effect.",
            (*_STORED, Field("status", "choice", "HTTP status", "503", HTTP_ERRORS), _WHEN),
            "--status 429 --method storage.objects.create --object 'runs/*' --count 5",
        ),
        Kind(
            "gcs-reset", STORAGE,
            "The connection is reset instead of an answer, before or after the request took effect.",
            (*_STORED, _WHEN), "--method storage.objects.get --count 1",
        ),
        Kind(
            "gcs-cut", STORAGE,
            f"The connection is reset after so many bytes of {_BODIES}.",
            (*_STORED, Field("bytes", "bytes", "bytes that still come through", required=True)),
            "--bytes 300kB --object '*.tfrecord*' --count 1",
        ),
        Kind(
            "gcs-corrupt", STORAGE,
            f"One byte is changed in {_BODIES}; lengths and checksums in headers stay right.",
            (*_STORED, Field("at", "bytes", "which byte: its offset in the body", 0)),
            "--method storage.objects.get --count 1",
        ),
        Kind(
            "gcs-stall", STORAGE,
            "Nothing comes any more for a while, then all goes on.",
            (
                *_STORED,
                Field("seconds", "seconds", "for how long; 0: until the fault is removed", 0.0),
                Field("at", "bytes", f"first let so many bytes through of {_BODIES}", 0),
            ),
            "--method storage.objects.get --seconds 20 --at 1MiB --count 1", stays=True,
        ),
        Kind(
            "gcs-slow", STORAGE,
            "A slow link: every request takes longer, and all that it applies to share a bandwidth.",
            (
                *_STORED,
                Field("latency", "seconds", "added to every request", 0.0),
                Field("bandwidth", "bytes", "bytes a second, each way; 0: not limited", 0),
            ),
            "--latency 80ms --bandwidth 5MB",
        ),
    )
}  # fmt: skip
"""Name -> kind, section by section."""


def kind_of(name: str) -> Kind:
    """Return a kind by its name; raises UsageError with the nearest ones."""
    found = KINDS.get(name)
    if found is None:
        close = nearest(name, KINDS)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(KINDS)}."
        raise UsageError(f"There is no kind of fault '{name}'.", hint=hint)
    return found
