"""Defines the kinds of faults in one table: name, effect, options and an example.

The command line, scenario files, `Simulator.faults.add` and docs/faults.md read it.
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
"""Methods with a long-running operation on a node, which faults can slow down, hold up or fail."""
FAILING = (*OPERATIONS, "CreateQueuedResource")
"""Methods whose operation can fail late."""


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
    """Options of a command that adds one."""
    note: str = ""
    """Details: how it is done, and its limits."""
    stays: bool = False
    """Whether its effect lasts after its count is used up, until the fault ends."""
    count: int | None = None
    """How often it fires by default; None for unlimited."""

    def field(self, name: str) -> Field | None:
        """Return the option of that name, the limits that every kind has included."""
        return next((field for field in (*self.fields, *LIMITS) if field.name == name), None)


LIMITS = (
    Field("count", "count", "how often it fires"),
    Field("skip", "number", "number of matches to skip first", 0),
    Field("after", "seconds", "time from adding the fault to its begin", 0.0),
    Field("duration", "seconds", "how long it lasts from its begin; default: unlimited"),
    Field("probability", "fraction", "firing probability of each match", 1.0),
    Field("seed", "number", "random seed for probability", 0),
)
"""Options of every kind."""

_ZONE = Field("zone", "pattern", "zones that it matches", "*")
_PROJECT = Field("project", "pattern", "projects that it matches", "*")
_TYPE = Field("type", "pattern", "accelerator types that it matches, such as v3-8", "*")
_NODE = Field("node", "pattern", "nodes that it matches, by id or full name", "*")
_WORKER = Field("worker", "pattern", "workers that it matches, by number", "*")
_RESOURCE = Field(
    "resource",
    "pattern",
    "resources that it matches, by full name or its last part; in storage BUCKET/OBJECT",
    "*",
)
_METHOD = Field(
    "method", "pattern", "methods that it matches: CreateNode, tpu.List*, storage.objects.get ...", "tpu.*"
)
_WHEN = Field(
    "when",
    "choice",
    "before: the request has no effect; after: only the response is lost",
    "before",
    ("before", "after"),
)
_BEGINS = "methods with an operation: {}"
_OPERATION = Field("method", "pattern", _BEGINS.format(", ".join(OPERATIONS)), "CreateNode")
_ONE_OPERATION = (_OPERATION, _RESOURCE, _ZONE, _TYPE)
_ANSWER = (_METHOD, _RESOURCE, _PROJECT, _ZONE, _WHEN)

_TRIGGERS = (
    Field("age", "seconds", "fire only after the node has been READY this long", 0.0),
    Field("run", "glob", "runs to watch for step or log; fires on the node of a run that has reached it"),
    Field(
        "step", "number", "fire only after the run's log ('step 120') or a checkpoint's name shows this step"
    ),
    Field("log", "regex", "fire only after a line of the run's log matches"),
)
"""When a fault of a node or a host fires."""

_NODES = (_NODE, _ZONE, _TYPE, *_TRIGGERS)
_HOSTS = (_NODE, _ZONE, _TYPE, _WORKER, *_TRIGGERS)

_STORED = (
    Field(
        "method",
        "pattern",
        "methods that it matches: storage.objects.get, storage.objects.*, storage.* ...",
        "storage.*",
    ),
    Field("bucket", "pattern", "buckets that it matches", "*"),
    Field("object", "pattern", "names of objects that it matches", "*"),
)
_BODIES = "the body of an upload (storage.objects.create) or of a download (storage.objects.get)"

_TUNNELS = (
    _PROJECT,
    _NODE,
    _ZONE,
    _TYPE,
    _WORKER,
    Field("request", "pattern", "requests that it matches: connect, reconnect", "*"),
)
_BOTH = "both directions together, of one connection"
_CLOSE_CODES = ("4000", "4001", "4003", "4004", "4033", "4047")

API, NODES, HOSTS, STORAGE = "Cloud TPU API", "Nodes", "Hosts", "Cloud Storage"
IAP = "Identity-Aware Proxy"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "stockout", API,
            "A create is accepted and its operation ends in RESOURCE_EXHAUSTED: no more capacity.",
            (_ZONE, _TYPE, _RESOURCE, Field("reserved", "flag", "the error names a reservation", False)),
            "--zone europe-west4-a --type v3-8 --count 2",
            "The node is CREATING and then gone; a queued resource returns to WAITING_FOR_RESOURCES. "
            "Starting a stopped node fails in the same way.",
        ),
        Kind(
            "quota", API,
            "A create is refused at once with RESOURCE_EXHAUSTED and a QuotaFailure.",
            (
                _PROJECT, _ZONE, _TYPE,
                Field("quota", "pattern", "quota ids that it matches", "*PerProjectPerZoneForTPUAPI"),
                Field("limit", "number", "cores (chips of v5e and v6e); 0: never granted", 0),
            ),
            "--zone europe-west4-a --limit 8",
            "Existing nodes and waiting queued resources count: with a limit of 8 the first v3-8 is created, "
            "the second refused.",
        ),
        Kind(
            "api-off", API,
            "Every call is refused with PERMISSION_DENIED: the API is not enabled (SERVICE_DISABLED).",
            (
                _PROJECT,
                Field(
                    "api", "pattern",
                    "API that is disabled: tpu, storage, cloudbilling, cloudquotas, * for all", "tpu",
                ),
            ),
            "--project sim-project",
            "Requests to Cloud Storage name no project: with api=storage give no project.",
        ),
        Kind(
            "permission", API,
            "Calls are refused with PERMISSION_DENIED, which names the missing permission.",
            (_METHOD, _RESOURCE, _PROJECT, _ZONE),
            "--method CreateNode",
            "With a method of storage.*, Cloud Storage refuses.",
        ),
        Kind(
            "zone-denied", API,
            "Calls to a zone are refused with PERMISSION_DENIED (LOCATION_POLICY_VIOLATED).",
            (Field("zone", "pattern", "zones that it matches", required=True), _PROJECT),
            "--zone us-central2-b",
        ),
        Kind(
            "unreachable", API,
            "Lists over all zones name the zone as unreachable; calls to it fail with UNAVAILABLE.",
            (Field("zone", "pattern", "zones that it matches", required=True), _PROJECT),
            "--zone us-central1-b",
        ),
        Kind(
            "unavailable", API,
            "Calls of a method fail with UNAVAILABLE, before or after taking effect.",
            _ANSWER, "--method CreateNode --when after --count 1",
        ),
        Kind(
            "deadline-exceeded", API,
            "Calls of a method fail with DEADLINE_EXCEEDED, before or after taking effect.",
            _ANSWER, "--method 'tpu.*' --count 3",
        ),
        Kind(
            "error", API,
            "Calls of a method fail with any code, text and reason, before or after taking effect.",
            (
                Field("method", "pattern", _METHOD.help, required=True),
                Field("code", "choice", "code of the error", "INTERNAL", CODES),
                Field("message", "text", "text of the error", "The simulator was asked to fail."),
                Field("reason", "text", "reason in the ErrorInfo", ""),
                Field("metadata", "pairs", "metadata of the ErrorInfo; quota_limit adds a QuotaFailure", {}),
                _RESOURCE, _PROJECT, _ZONE, _WHEN,
            ),
            "--method GetNode --code ABORTED --count 1",
            "In Cloud Storage the code becomes the corresponding HTTP status.",
        ),
        Kind(
            "guest-attributes-off", API,
            "GetGuestAttributes is refused with FAILED_PRECONDITION: an organization policy forbids them.",
            (_RESOURCE, _PROJECT, _ZONE), "--project sim-project",
            "The constraint is compute.disableGuestAttributesAccess. Hosts publish them all the same: only "
            "reading is refused. `--host-keys first-contact` does without.",
        ),
        Kind(
            "slow-operation", API,
            "An operation takes longer.",
            (*_ONE_OPERATION, Field("seconds", "seconds", "how much longer it takes", 60.0)),
            "--method CreateNode --seconds 5m --count 1",
        ),
        Kind(
            "stuck-operation", API,
            "An operation does not end while the fault is in force, and resumes when it is removed.",
            _ONE_OPERATION, "--method CreateNode --zone us-central2-b", stays=True,
        ),
        Kind(
            "failed-operation", API,
            "A call is accepted and its operation fails late; the node is as it was, or gone if it was new.",
            (
                Field("method", "pattern", _BEGINS.format(", ".join(FAILING)), "CreateNode"),
                *_ONE_OPERATION[1:],
                Field("code", "choice", "code of the error", "INTERNAL", CODES),
                Field("message", "text", "text of the error", "The simulator was asked to fail."),
                Field("reason", "text", "reason in the ErrorInfo", ""),
                Field("metadata", "pairs", "metadata of the ErrorInfo; quota_limit adds a QuotaFailure", {}),
                Field("seconds", "seconds", "time until it fails; default: the usual time of a failure"),
            ),
            "--method DeleteNode --code INTERNAL --count 1",
        ),
        Kind(
            "preemption", NODES,
            "A READY node is preempted: notice on its hosts, SIGTERM, then PREEMPTED until it is deleted.",
            (
                *_NODES,
                Field("notice", "seconds", "time between the notice and SIGTERM; on Google Cloud none", 0.0),
                Field("grace", "seconds", "time between SIGTERM and the end of what still runs", 30.0),
            ),
            "--run 'digits-*' --step 200",
            "The default of `grace` is the time that Compute Engine gives, at every speed of the "
            "simulator; the node is PREEMPTED as soon as no program runs. Both times are those of the "
            "simulator's clock.",
            count=1,
        ),
        Kind(
            "maintenance-notice", NODES,
            "A worker's metadata server announces maintenance; the node shows upcoming_maintenance.",
            (*_NODES, Field("worker", "number", "worker that gets the notice", 0)),
            "--node n1", count=1,
        ),
        Kind(
            "maintenance", NODES,
            "A node is REPAIRING while its hosts restart; disks are kept.",
            (*_NODES, Field("notice", "seconds", "time between notice and maintenance; 0: no notice", 0.0)),
            "--node n1 --notice 30", count=1,
        ),
        Kind(
            "host-hang", HOSTS,
            "A host accepts connections and does not answer; its programs stop, and resume afterwards.",
            _HOSTS, "--node n1 --worker 1 --duration 2m",
            "Programs get SIGSTOP and SIGCONT. The API still says READY.", stays=True,
        ),
        Kind(
            "host-death", HOSTS,
            "A host dies: its programs end and nothing on it answers, until the fault is removed.",
            _HOSTS, "--node n1 --worker 3",
            "Programs get SIGKILL. Removing the fault boots the host, with its disk, without its programs. "
            "This machine's kernel accepts connections, which get no answer; on a real host they time out.",
            stays=True,
        ),
        Kind(
            "network-loss", HOSTS,
            "A host loses its network: its programs keep running, but neither SSH nor any service answers.",
            _HOSTS, "--node n1 --duration 30s",
            "SSH, the host's metadata server, and the simulator's proxy, Cloud Storage and APIs stop "
            "answering, and connections from programs of this host are cut. The owner of a connection is "
            "read from /proc: on macOS only SSH and metadata stop. Connections between hosts and those that "
            "bypass the proxy stay.",
            stays=True,
        ),
        Kind(
            "ssh-refused", HOSTS,
            "A host refuses new SSH connections (connection refused); open ones stay.",
            _HOSTS, "--node n1 --duration 20s", stays=True,
        ),
        Kind(
            "wrong-host-key", HOSTS,
            "A host's SSH server shows another key than the one its guest attributes publish.",
            _HOSTS, "--node n1", stays=True,
        ),
        Kind(
            "disk-full", HOSTS,
            "A host's disk is full: SFTP, SCP and programs fail to write.",
            _HOSTS, "--node n1 --worker 0",
            "SFTP and SCP fail; a Python program that creates a file or folder below its host's home or "
            "tmp gets ENOSPC. For open files, and for programs other than Python, the kernel limits the size "
            "of files instead (Linux only), wherever they are: the write fails with EFBIG, or SIGXFSZ ends "
            "the program.",
            stays=True,
        ),
        Kind(
            "iap-refused", IAP,
            "The relay closes a new tunnel with a code, or answers the request with an HTTP status.",
            (
                *_TUNNELS,
                Field(
                    "code", "choice",
                    "close code (4003: no connection to the host, 4033: not authorized, 4047: no such "
                    "instance, 4001: no such session), or HTTP status", "4003",
                    ("401", "403", "503", *_CLOSE_CODES),
                ),
            ),
            "--code 4033 --node n1 --worker 0",
        ),
        Kind(
            "iap-cut", IAP,
            "A tunnel's connection to the relay is cut after some bytes; the tunnel can be resumed.",
            (
                *_TUNNELS,
                Field("bytes", "bytes", f"bytes before the cut, {_BOTH}", 0),
                Field("code", "choice", "close code; default: a reset", "", ("1001", "1011", *_CLOSE_CODES)),
                Field("lost", "flag", "the tunnel cannot be resumed", False),
            ),
            "--bytes 300kB --count 1",
            "With 0 bytes, tunnels that are open are cut at once, and new ones as soon as they are.",
        ),
        Kind(
            "iap-stall", IAP,
            "Tunnels fall silent in both directions, then resume.",
            (
                *_TUNNELS,
                Field("seconds", "seconds", "how long it is silent; 0: until the fault is removed", 0.0),
                Field("at", "bytes", f"bytes before the silence, {_BOTH}", 0),
            ),
            "--node n1 --seconds 20 --count 1", stays=True,
        ),
        Kind(
            "iap-slow", IAP,
            "Tunnels open late, and all matching tunnels share a bandwidth.",
            (
                *_TUNNELS,
                Field("latency", "seconds", "time until a tunnel is open, or resumed", 0.0),
                Field("bandwidth", "bytes", "bytes a second, each way; 0: not limited", 0),
            ),
            "--latency 2s --bandwidth 200kB",
        ),
        Kind(
            "gcs-error", STORAGE,
            "Requests are answered with an HTTP error, before or after taking effect.",
            (*_STORED, Field("status", "choice", "HTTP status", "503", HTTP_ERRORS), _WHEN),
            "--status 429 --method storage.objects.create --object 'runs/*' --count 5",
        ),
        Kind(
            "gcs-reset", STORAGE,
            "The connection is reset instead of a response, before or after the request takes effect.",
            (*_STORED, _WHEN), "--method storage.objects.get --count 1",
        ),
        Kind(
            "gcs-cut", STORAGE,
            f"The connection is reset after some bytes of {_BODIES}.",
            (*_STORED, Field("bytes", "bytes", "bytes before the reset", required=True)),
            "--bytes 300kB --object '*.tfrecord*' --count 1",
        ),
        Kind(
            "gcs-corrupt", STORAGE,
            f"One byte is changed in {_BODIES}; lengths and checksums in headers stay correct.",
            (*_STORED, Field("at", "bytes", "offset of the byte in the body", 0)),
            "--method storage.objects.get --count 1",
        ),
        Kind(
            "gcs-stall", STORAGE,
            "Transfers stall for a while, then resume.",
            (
                *_STORED,
                Field("seconds", "seconds", "how long a transfer stalls; 0: until the fault is removed", 0.0),
                Field("at", "bytes", f"bytes to transfer first, of {_BODIES}", 0),
            ),
            "--method storage.objects.get --seconds 20 --at 1MB --count 1", stays=True,
        ),
        Kind(
            "gcs-slow", STORAGE,
            "A slow connection: every request takes longer, and all matching requests share a bandwidth.",
            (
                *_STORED,
                Field("latency", "seconds", "time added to every request", 0.0),
                Field("bandwidth", "bytes", "bytes a second, each way; 0: not limited", 0),
            ),
            "--latency 80ms --bandwidth 5MB",
        ),
    )
}  # fmt: skip
"""Name -> kind, section by section."""


def kind_of(name: str) -> Kind:
    """Return a kind by its name; raises UsageError with the nearest ones."""
    kind = KINDS.get(name)
    if kind is None:
        close = nearest(name, KINDS)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(KINDS)}."
        raise UsageError(f"There is no kind of fault '{name}'.", hint=hint)
    return kind
