"""Watches over one TPU: decides when it ends, deletes it, and records that.

Only the end of its own node ends it, and what fails elsewhere delays no deletion: it needs no disk, asks at
least once a minute while something does not answer, and writes its record after the deletion.

- Reads the metadata server of this VM, which also tells the time, and writes guest attributes.
- Reads and deletes this VM's own TPU through the Cloud TPU API, as the VM's service account.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
import sys
import threading
import time
import urllib.parse
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPMessage, responses
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from tpuctl.host import gcs, timing
from tpuctl.host.keeper import records
from tpuctl.host.keeper.records import Deletion, Note, moment
from tpuctl.host.wire import Answer, ask, ask_metadata

METADATA_TIMEOUT = 10.0
_ENVIRONMENT_LINE = re.compile(r"(?<![A-Z_])([A-Z_]+): '([^']*)'")


class MetadataError(Exception):
    """The metadata server did not answer, or not as Google's does."""


@dataclass(frozen=True)
class Metadata:
    """The attributes of this VM at one moment."""

    attributes: Dict[str, str]
    at: float
    """Seconds since 1970 by the server's clock: the VM's own may be wrong."""
    etag: str

    @property
    def worker(self) -> int:
        """Which worker of the slice this VM is."""
        return int(self.attributes.get("agent-worker-number", "0"))

    @property
    def hosts(self) -> int:
        """How many VMs the slice has."""
        return len(self.attributes.get("worker-network-endpoints", "").split(","))

    @property
    def environment(self) -> Dict[str, str]:
        """The variables in which libtpu finds its slice: NODE_ID, ZONE, CONSUMER_PROJECT_ID ..."""
        return dict(_ENVIRONMENT_LINE.findall(self.attributes.get("tpu-env", "")))


class MetadataServer:
    """The server of the VM that this program runs on."""

    def attributes(self, last: Optional[Metadata] = None, wait: float = 0.0) -> Metadata:
        """Return the attributes; with `last`, once they differ or after `wait` seconds."""
        query = {"recursive": "true", "alt": "json"}
        if last is not None:
            timeout = str(max(1, int(wait)))
            query.update(wait_for_change="true", last_etag=last.etag, timeout_sec=timeout)
        path = "instance/attributes/?" + urllib.parse.urlencode(query)
        answer = self._ask(path, timeout=METADATA_TIMEOUT + wait)
        try:
            date = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
            return Metadata(dict(json.loads(answer.body)), date, answer.headers.get("ETag", "0"))
        except (ValueError, TypeError) as error:
            raise MetadataError("the metadata server does not answer as Google's does: %s" % error) from None

    def text(self, path: str) -> str:
        """Return one value, such as `instance/zone`."""
        return self._ask(path).body.decode()

    def publish(self, namespace: str, key: str, value: bytes) -> None:
        """Write a guest attribute, which the Cloud TPU API shows."""
        self._ask("instance/guest-attributes/%s/%s" % (namespace, key), value)

    def _ask(self, path: str, data: Optional[bytes] = None, timeout: float = METADATA_TIMEOUT) -> Answer:
        try:
            answer = ask_metadata(path, timeout, data)
        except OSError as error:
            raise MetadataError("the metadata server does not answer: %s" % error) from None
        if answer.status >= 300:
            reason = "HTTP Error %d: %s" % (answer.status, responses.get(answer.status, ""))
            raise MetadataError("the metadata server refused %s: %s" % (path.split("?")[0], reason))
        return answer


URL = "https://tpu.googleapis.com"
NODE = "projects/%s/locations/%s/nodes/%s"
QUEUED_RESOURCE = re.compile(r"projects/[^/]+/locations/[^/]+/queuedResources/[^/?#]+")
API_TIMEOUT = 20.0


class ApiError(Exception):
    """The Cloud TPU API did not answer, or refused a request; the text is Google's."""


class RefusedError(ApiError):
    """The service account lacks a permission, which the text names, or the request cannot be done."""


class AbsentError(ApiError):
    """The API says that the resource does not exist."""


@dataclass(frozen=True)
class OwnNode:
    """The node that this VM belongs to, as the API shows it."""

    uid: str
    state: str
    created: float
    addresses: Tuple[str, ...]
    queued_resource: str
    """Full name; empty for a node that was created directly."""
    at: float
    """When the API answered, by its clock."""


class TpuApi:
    """The Cloud TPU API for one node."""

    def __init__(self, project: str, zone: str, node: str) -> None:
        self.name = NODE % (project, zone, node)
        self._token = gcs.Token()

    def node(self) -> OwnNode:
        """Return the node of this name; raises AbsentError only when the API says that there is none."""
        content, headers = self._call("GET", self.name)
        queued = str(content.get("queuedResource", ""))
        return OwnNode(
            uid=str(content["id"]),
            state=str(content.get("state", "")),
            created=moment(str(content["createTime"])),
            addresses=tuple(
                str(endpoint.get("ipAddress", "")) for endpoint in content.get("networkEndpoints", ())
            ),
            queued_resource=queued if QUEUED_RESOURCE.fullmatch(queued) else "",
            at=email.utils.parsedate_to_datetime(headers["Date"]).timestamp(),
        )

    def guest_attributes(self, namespace: str, worker: Optional[int] = None) -> List[Dict[str, str]]:
        """Return the guest attributes of a namespace by key, for each worker or for one alone."""
        body: Dict[str, object] = {"queryPath": namespace + "/"}
        if worker is not None:
            body["workerIds"] = [str(worker)]
        content, _ = self._call("POST", self.name + ":getGuestAttributes", body)
        return [
            {
                str(item.get("key", "")): str(item.get("value", ""))
                for item in worker.get("queryValue", {}).get("items", ())
            }
            for worker in content.get("guestAttributes", ())
        ]

    def delete(self) -> None:
        """Start to delete the node."""
        self._call("DELETE", self.name)

    def delete_queued_resource(self, name: str) -> None:
        """Start to delete a queued resource with its nodes."""
        self._call("DELETE", name + "?force=true")

    def _call(
        self, method: str, path: str, body: Optional[Dict[str, object]] = None
    ) -> Tuple[Dict[str, Any], HTTPMessage]:
        data = None if body is None else json.dumps(body).encode()
        try:
            headers = {"Authorization": self._token.header(), "Content-Type": "application/json"}
            answer = ask(URL, method, "/v2/" + path, data, headers, API_TIMEOUT)
            if answer.status < 300:
                return json.loads(answer.body), answer.headers
        except (OSError, gcs.GcsError, ValueError) as error:
            text = "no answer from the Cloud TPU API: %s" % (str(error) or type(error).__name__)
            raise ApiError(text) from None
        if answer.status == 401:  # a clock that jumped back hides that the token is too old
            self._token = gcs.Token()
        kind = {400: RefusedError, 403: RefusedError, 404: AbsentError}.get(answer.status, ApiError)
        raise kind("%s %s: %s" % (method, path, _message(answer)))


def _message(answer: Answer) -> str:
    """Return Google's own sentence, or the status."""
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "HTTP %d" % answer.status


FIRST_PAUSE, LONGEST_PAUSE = 5.0, 30.0
"""Seconds from one look to the next after a failure, which double. Whatever hangs adds less than 30."""
LEAST_PAUSE = 1.0
HOST_TIMEOUT = 10.0
"""Seconds for a look at the host: a file system of a server that is gone answers never."""
JUMP = 60.0
"""Seconds by which the metadata server's clock and the host's monotonic one may differ without question."""
GONE_AFTER = 3600.0
"""Seconds for which the API has to say that the node is gone: no VM outlives its node by so much."""
LAST_STATES = ("DELETING",)
RECORD_TIMEOUT = 15.0
"""Seconds for the record of a deletion, of those that a VM has between SIGTERM and its end."""
TERMINATED = 143
"""Exit code of who was asked to end by SIGTERM, as a shell shows it."""


class AnotherNodeError(Exception):
    """The node of this name is not the one that this VM belongs to."""


@dataclass(frozen=True)
class Ending:
    """Why and since when the TPU is to be deleted."""

    reason: str
    due: float


class Memory:
    """What a keeper leaves to the next one of the same boot, as the times of a file: they need no room."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> Tuple[Optional[float], Optional[float]]:
        """Return when the first keeper started and when the host was last in use; None for not known."""
        try:
            file = os.stat(self._path)
        except OSError:
            return None, None
        return file.st_atime, file.st_mtime

    def write(self, started: float, used: float) -> None:
        """Keep both; where that fails, this keeper still knows them."""
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            os.utime(self._path, (started, used))
        except OSError:
            pass


class Keeper:
    """The keeper of one host; `activity` returns what uses the host now.

    Its time is that of the metadata server. Where that jumps, as `clock` shows, which is monotonic, the Cloud
    TPU API decides. The host's own time does not matter.
    """

    def __init__(
        self,
        server: MetadataServer,
        activity: Callable[[], Iterable[str]],
        interval: float,
        memory: Optional[Memory] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._activity = activity
        self._interval = interval
        self._memory = memory
        self._clock = clock
        self._pause = 0.0
        self._said = ""
        self._looking = self._recording = threading.Thread()
        self._is_deleting = self._is_terminated = False
        self._metadata = server.attributes()
        self._worker = self._metadata.worker
        self._began = clock()
        self._used: Optional[float] = None
        """When this process last saw a use, by `clock`."""
        self._first, self._stored = memory.read() if memory else (None, None)
        """When the first keeper of this boot started, and the last use by it and by other workers."""
        self._server_ahead = self._ahead = self._metadata.at - self._began
        """Of `clock`: the metadata server, and the time that counts."""
        self._is_set = self._is_sure = self._worker != 0
        """Whether the time that counts was ever set, and whether no clock has jumped since."""
        self._note = Note(self._worker, "")
        environment = self._metadata.environment
        self.project = environment.get("CONSUMER_PROJECT_ID") or server.text("project/project-id")
        self.zone = environment.get("ZONE") or server.text("instance/zone").rpartition("/")[2]
        self.name = environment.get("NODE_ID") or self._metadata.attributes["instance-id"]
        self._address = server.text("instance/network-interfaces/0/ip")
        self._api = TpuApi(self.project, self.zone, self.name)
        self._node: Optional[OwnNode] = None

    @property
    def has_work(self) -> bool:
        """Whether this host's keeper is needed: other workers' only report whether they are in use."""
        return self._worker == 0 or records.IDLE in self._metadata.attributes

    def run(self) -> None:
        """Return once the node of this VM has not existed for GONE_AFTER."""
        gone: Optional[float] = None
        while self.has_work:
            begun = self._clock()
            try:
                self.look()
                gone = None
            except (AbsentError, AnotherNodeError):
                gone = begun if gone is None else gone
                if begun - gone >= GONE_AFTER:
                    return
            self._await_next(begun)

    def terminate(self) -> None:
        """End, for SIGTERM; in the midst of a deletion, whose work that may be, only after its record."""
        self._is_terminated = True
        if not self._is_deleting:
            if self._recording.is_alive():
                self._recording.join(RECORD_TIMEOUT)
            raise SystemExit(TERMINATED)

    def look(self) -> None:
        """Look once at the host and the clock; delete the TPU if it is to end. Publish a note about it.

        Raises AbsentError and AnotherNodeError where its node is not there.
        """
        problem: Optional[Exception] = None
        try:
            self._know_time()
        except Exception as error:  # of an answer that is none, too: the next look asks again
            problem = error
        self._note_use()
        at = self._at
        self._note = replace(
            self._note, at=records.iso(at), active=records.iso(self._active), deleting="", error=""
        )
        try:
            if self._worker == 0 and problem is None:
                self._keep(at)
        except Exception as error:  # as above
            problem = error
        self._pause = 0.0 if problem is None else min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        if problem is not None:
            self._note = replace(self._note, error=_text(problem))
        self._publish()
        if isinstance(problem, (AbsentError, AnotherNodeError)):
            raise problem

    def _await_next(self, begun: float) -> None:
        """Return with the metadata of the next look; while their server is away, note at least uses."""
        wait = max(LEAST_PAUSE, (self._pause or self._interval) - (self._clock() - begun))
        while True:
            try:
                return self._take(self._server.attributes(self._metadata, wait))
            except MetadataError as error:
                self._say(str(error))
            timing.sleep(FIRST_PAUSE)
            self._note_use()
            wait = 0.0

    def _take(self, metadata: Metadata) -> None:
        """Take what the metadata server says; a jump of its clock is to be checked."""
        self._metadata = metadata
        ahead = metadata.at - self._clock()
        moved, self._server_ahead = ahead - self._server_ahead, ahead
        if abs(moved) > JUMP:
            self._is_sure = False
        else:
            self._ahead += moved

    @property
    def _at(self) -> float:
        """Now, in seconds since 1970."""
        return self._clock() + self._ahead

    @property
    def _started(self) -> float:
        return self._began + self._ahead if self._first is None else self._first

    @property
    def _active(self) -> float:
        """When the host was last in use; as if it was when the first keeper of this boot started."""
        uses = [] if self._stored is None else [self._stored]
        uses += [] if self._used is None else [self._used + self._ahead]
        return min(self._at, max(uses or [self._started]))

    def _know_time(self) -> None:
        """Have the API say what time it is, unless that is known."""
        if not self._is_sure:
            self._node = self._own_node() if self._worker == 0 else self._api.node()
            self._set_time(self._node.at)

    def _set_time(self, moment: float) -> None:
        """Let it be this moment; what this process has seen before keeps its time, if that was known."""
        ahead = moment - self._clock()
        if self._is_set:
            self._began -= ahead - self._ahead
            self._used = None if self._used is None else self._used - (ahead - self._ahead)
        self._ahead, self._is_sure, self._is_set = ahead, True, True

    def _note_use(self) -> None:
        """Note if the host is in use."""
        reasons = self._reasons()
        if reasons:
            self._used = self._clock()
        self._note = replace(self._note, activity="; ".join(reasons)[:500])
        if self._memory and self._is_sure:
            self._memory.write(self._started, self._active)

    def _reasons(self) -> List[str]:
        """Return what uses the host; one that cannot be looked at counts as used until the last look."""
        found: List[str] = []
        try:
            if not self._looking.is_alive():
                self._looking = _in_thread(lambda: found.extend(self._activity()))
                self._looking.join(HOST_TIMEOUT)
        except RuntimeError as error:  # the host can start no thread
            self._say(str(error))
        if self._looking.is_alive():
            self._say("a look at the host does not end")
        return list(found)

    def _keep(self, at: float) -> None:
        """Delete the TPU if it is at its end; metadata that is wrong about one end leaves the other."""
        assert self._node is not None, "asked before"
        attributes = self._metadata.attributes
        problem: Optional[ValueError] = None
        endings: List[Ending] = []
        try:
            expires = records.expiry(attributes, self._node.created)
            self._note = replace(self._note, expires=records.iso(expires))
            endings += [] if expires is None else [Ending(records.EXPIRED, expires)]
        except ValueError as error:
            problem = error
        try:
            idle = records.idle_limit(attributes)
            endings += [] if idle is None else [Ending(records.IDLED, self._active + idle)]
        except ValueError as error:
            problem = error
        for ending in endings:
            if at >= ending.due:
                self._end(ending)
                return
        if problem:
            raise problem

    def _own_node(self) -> OwnNode:
        """Return this VM's node; raises AnotherNodeError if the name is another's now."""
        node = self._api.node()
        is_another = self._node and node.uid != self._node.uid
        if is_another or self._address not in node.addresses:
            if not is_another and sum(map(bool, node.addresses)) < self._metadata.hosts:
                raise ApiError("%s does not show the addresses of its hosts yet" % self._api.name)
            raise AnotherNodeError("%s is another node now" % self._api.name)
        return node

    def _end(self, ending: Ending) -> None:
        """Delete the TPU, unless the API's clock or another worker says that it is not at its end."""
        node = self._own_node()
        if node.state in LAST_STATES:
            return
        if node.at < ending.due:
            self._set_time(node.at)
            return
        if ending.reason == records.IDLED and self._metadata.hosts > 1:
            due = ending.due - self._active
            self._stored = max(self._active, *self._last_uses())
            ending = replace(ending, due=due + self._stored)
            if self._at < ending.due:
                return
        self._note = replace(self._note, deleting=ending.reason)
        self._is_deleting = True
        try:
            self._delete(node)
            if not self._recording.is_alive():
                self._recording = _in_thread(lambda: self._record(ending, node))
        finally:
            self._is_deleting = False
        if self._is_terminated:
            self.terminate()

    def _last_uses(self) -> List[float]:
        """Return when each other worker was last in use; one that is silent counts until its last report.

        One that cannot be seen counts as used until the first keeper started. Raises ApiError where the API
        may answer later.
        """
        at, patience = self._at, 3 * self._interval
        return [
            _last_use(values.get(records.NOTE, ""), self._started, at, patience)
            for values in self._seen_workers()
        ] or [self._started]

    def _seen_workers(self) -> List[Dict[str, str]]:
        """Return the notes of the other workers; where one has none, Google may answer that none has any."""
        try:
            return self._api.guest_attributes(records.NAMESPACE)[1:]
        except RefusedError as error:
            self._say("other workers are not seen: %s" % error)
            return []
        except AbsentError as error:
            self._say(str(error))
        seen = []
        for worker in range(1, self._metadata.hosts):
            try:
                seen += self._api.guest_attributes(records.NAMESPACE, worker)
            except (RefusedError, AbsentError):
                seen.append({})
        return seen

    def _record(self, ending: Ending, node: OwnNode) -> None:
        """Say in the bucket what was done, in what is left of this VM's life."""
        bucket = self._metadata.attributes.get(records.BUCKET, "")
        if not bucket:
            return
        deletion = Deletion(
            project=self.project,
            zone=self.zone,
            node=self.name,
            uid=node.uid,
            queued_resource=node.queued_resource.rpartition("/")[2],
            reason=ending.reason,
            at=records.iso(node.at),
            expires=self._note.expires,
            active=records.iso(self._active),
        )
        folder = records.deletions_folder(self.project, self.zone, self.name, node.uid)
        name = "%s%s-%s.json" % (folder, ending.reason, records.iso(ending.due))
        with closing(gcs.Bucket(bucket)) as storage:
            storage.create(name, records.encode(deletion), "application/json")

    def _delete(self, node: OwnNode) -> None:
        """Delete the queued resource with its nodes; where that fails, at least what bills: the node.

        A failure that may be gone soon is waited for once: without its node the queued resource takes quota.
        """
        if node.queued_resource:
            try:
                return self._api.delete_queued_resource(node.queued_resource)
            except AbsentError:
                pass
            except RefusedError as error:
                self._say("%s; only the node is deleted" % error)
            except ApiError as error:
                if not self._pause:
                    raise
                self._say("%s; only the node is deleted" % error)
        try:
            return self._api.delete()
        except AbsentError:
            return None

    def _publish(self) -> None:
        self._say(self._note.error)
        try:
            self._server.publish(records.NAMESPACE, records.NOTE, records.encode(self._note))
        except MetadataError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        """Write what is new into the log, which is in memory."""
        if text and text != self._said:
            _log(text)
        self._said = text or self._said


def _last_use(text: str, started: float, at: float, patience: float) -> float:
    """Return when a worker was last in use by its note; without a note, when this keeper started."""
    try:
        note = json.loads(text)
        reported = records.moment(str(note["at"]))
        active = records.moment(str(note["active"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return started
    if reported > at:  # its clock is ahead
        active, reported = active - (reported - at), at
    return min(at, active if at - reported <= patience else reported)


def _text(error: Exception) -> str:
    """Return what went wrong; of what nobody foresaw, also its kind."""
    known = (ApiError, AnotherNodeError, MetadataError, ValueError)
    return str(error) if isinstance(error, known) else "%s: %s" % (type(error).__name__, error)


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    """Start work that may hang or fail, and return its thread, which ends with the program."""

    def attempt() -> None:
        try:
            work()
        except Exception as error:  # whatever it is, it stops nothing
            _log(_text(error))

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    return thread


def _log(text: str) -> None:
    try:
        print("[tpuctl keeper] %s" % text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # a full disk
        pass
