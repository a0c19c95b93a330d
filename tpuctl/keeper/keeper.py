"""Watches over one TPU: decides when it ends, records that, and deletes it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Callable, Iterable, List, Optional

from tpuctl.keeper import records
from tpuctl.keeper.api import AbsentError, ApiError, OwnNode, RefusedError, TpuApi
from tpuctl.keeper.metadata import Metadata, MetadataError, MetadataServer
from tpuctl.keeper.records import Deletion, Note
from tpuctl.worker import gcs

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds until another attempt after a failure; each pause is twice the one before."""
LAST_STATES = ("DELETING",)


class AnotherNodeError(Exception):
    """The node of this name is not the one that this VM belongs to."""


@dataclass(frozen=True)
class Ending:
    """Why and since when the TPU is to be deleted."""

    reason: str
    due: float


class Keeper:
    """The keeper of one host; `activity` returns what uses the host now."""

    def __init__(
        self, server: MetadataServer, activity: Callable[[], Iterable[str]], interval: float
    ) -> None:
        self._server = server
        self._activity = activity
        self._interval = interval
        self._pause = 0.0
        self._metadata = server.attributes()
        self._worker = self._metadata.worker
        self._started = self._active = self._metadata.at
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
        """Return once the node of this VM does not exist any more."""
        while self.has_work:
            try:
                self.look()
            except (AbsentError, AnotherNodeError) as error:
                self._publish(error=str(error))
                return
            wait = self._pause or self._interval
            try:
                self._metadata = self._server.attributes(self._metadata, wait)
            except MetadataError as error:
                _log(str(error))
                raise

    def look(self) -> None:
        """Look once at the host and the clock; delete the TPU if it is to end. Publish a note about it.

        Raises AbsentError and AnotherNodeError when there is nothing left to do.
        """
        metadata = self._metadata
        reasons = list(self._activity())
        if reasons:
            self._active = metadata.at
        note = replace(self._note, at=records.iso(metadata.at), activity="; ".join(reasons)[:500], error="")
        self._note = replace(note, active=records.iso(self._active))
        try:
            if self._worker == 0:
                self._keep(metadata)
            self._pause = 0.0
        except (ApiError, ValueError) as error:
            self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
            self._note = replace(self._note, error=str(error))
            if isinstance(error, AbsentError):
                raise
        self._publish()

    def _keep(self, metadata: Metadata) -> None:
        if self._node is None:
            self._node = self._own_node()
        expires = records.expiry(metadata.attributes, self._node.created)
        self._note = replace(self._note, expires=records.iso(expires), deleting="")
        ending = self._ending(metadata, expires)
        if ending:
            self._end(metadata, ending, expires)

    def _own_node(self) -> OwnNode:
        """Return this VM's node; raises AnotherNodeError if the name is another's now."""
        node = self._api.node()
        if self._address not in node.addresses or (self._node and node.uid != self._node.uid):
            raise AnotherNodeError("%s is another node now" % self._api.name)
        return node

    def _ending(self, metadata: Metadata, expires: Optional[float]) -> Optional[Ending]:
        if expires is not None and metadata.at >= expires:
            return Ending(records.EXPIRED, expires)
        idle = records.idle_limit(metadata.attributes)
        if idle is not None and metadata.at >= self._active + idle:
            return Ending(records.IDLED, self._active + idle)
        return None

    def _end(self, metadata: Metadata, ending: Ending, expires: Optional[float]) -> None:
        """Delete the TPU, unless the API's clock or another worker says that it is not at its end."""
        node = self._own_node()
        if node.state in LAST_STATES:
            return
        if node.at < ending.due:
            raise ValueError(
                "the clocks differ: %s by the metadata server, %s by the API"
                % (records.iso(metadata.at), records.iso(node.at))
            )
        if ending.reason == records.IDLED and metadata.hosts > 1:
            self._active = max(self._active, *self._last_uses(metadata))
            if self._ending(metadata, expires) is None:
                return
        self._publish(deleting=ending.reason)
        self._record(metadata, ending, node, expires)
        self._delete(node)

    def _last_uses(self, metadata: Metadata) -> List[float]:
        """Return when each other worker was last in use; one that is silent counts until its last report."""
        try:
            of_workers = self._api.guest_attributes(records.NAMESPACE)
        except RefusedError as error:
            _log("other workers are not seen: %s" % error)
            return [self._started]
        return [
            _last_use(values.get(records.NOTE, ""), self._started, metadata.at, 3 * self._interval)
            for values in of_workers[1:]
        ] or [self._started]

    def _record(self, metadata: Metadata, ending: Ending, node: OwnNode, expires: Optional[float]) -> None:
        """Say in the bucket what follows; a bucket that cannot be written to stops nothing."""
        bucket = metadata.attributes.get(records.BUCKET, "")
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
            expires=records.iso(expires),
            active=records.iso(self._active),
        )
        folder = records.deletions_folder(self.project, self.zone, self.name, node.uid)
        name = "%s%s-%s.json" % (folder, ending.reason, records.iso(ending.due))
        try:
            with closing(gcs.Bucket(bucket)) as storage:
                storage.create(name, records.encode(deletion), "application/json")
        except (gcs.GcsError, OSError) as error:
            _log("gs://%s/%s could not be written: %s" % (bucket, name, error))

    def _delete(self, node: OwnNode) -> None:
        """Delete the queued resource with its nodes; where that is refused, at least what bills: the node."""
        if node.queued_resource:
            try:
                return self._api.delete_queued_resource(node.queued_resource)
            except AbsentError:
                pass
            except RefusedError as error:
                _log("%s; only the node is deleted" % error)
        try:
            return self._api.delete()
        except AbsentError:
            return None

    def _publish(self, **changes: str) -> None:
        self._note = replace(self._note, **changes)  # type: ignore[arg-type]  # texts only
        if self._note.error:
            _log(self._note.error)
        try:
            self._server.publish(records.NAMESPACE, records.NOTE, records.encode(self._note))
        except MetadataError as error:
            _log(str(error))


def _last_use(text: str, started: float, at: float, patience: float) -> float:
    """Return when a worker was last in use by its note; without a note, when this keeper started."""
    try:
        note = json.loads(text)
        reported = records.moment(str(note["at"]))
        active = records.moment(str(note["active"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return started
    return min(at, active if at - reported <= patience else reported)


def _log(text: str) -> None:
    print("[tpuctl keeper] %s" % text, file=sys.stderr, flush=True)
