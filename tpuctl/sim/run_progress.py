"""Reads the progress of runs from the bucket: steps in logs and names of checkpoints, and each run's node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from tpuctl.sim.faults import Fault
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject

LOG = re.compile(r"runs/([^/]+)/(attempts/\d+/workers/\d+)/log/\d+\.log")
CHECKPOINT = re.compile(r"runs/([^/]+)/checkpoints/(.+)")
ORDERED_LOG = re.compile(r"runs/([^/]+)/attempts/\d+/log/\d{8}T\d{6}-(\d+)-\d+\.log")
ATTEMPT = re.compile(r"runs/([^/]+)/attempts/(\d+)/attempt\.json")
STEP = re.compile(r"(?<![a-z])step\b\W{0,3}(\d+)", re.IGNORECASE)
"""`step 120`, `Step: 120/1000`, `global_step=120`."""
NUMBER = re.compile(r"\d+")
LONGEST_LINE = 4096
"""Characters that are kept of a log's last line while it is incomplete."""


class RunProgress:
    """Follows runs for faults with `run`, `step` or `log`; calls `on_progress` when one is reached."""

    def __init__(self, store: Store, on_progress: Callable[[], None]) -> None:
        self._store = store
        self._on_progress = on_progress
        self._watches: dict[str, _Watch] = {}

    def follow(self, faults: list[Fault]) -> None:
        """Follow runs for exactly these faults; for new ones, look at what is in the buckets already."""
        with_run = {fault.id: fault for fault in faults if fault.get("run")}
        self._watches = {id_: watch for id_, watch in self._watches.items() if id_ in with_run}
        for id_, fault in with_run.items():
            if id_ not in self._watches:
                watch = self._watches[id_] = _Watch(fault)
                for stored in self._objects_of_runs():
                    self._look(watch, stored)

    def look_at(self, stored: StoredObject) -> None:
        """Look at an object that has just been written."""
        if self._watches and stored.name.startswith("runs/"):
            changes = [self._look(watch, stored) for watch in self._watches.values()]
            if any(changes):
                self._on_progress()

    def nodes_that_reached(self, fault: Fault) -> set[str]:
        """Return the ids of the nodes whose runs have reached the step or the log line of a fault."""
        watch = self._watches.get(fault.id)
        return {watch.nodes[run][1] for run in watch.reached if run in watch.nodes} if watch else set()

    def _look(self, watch: _Watch, stored: StoredObject) -> bool:
        before = len(watch.reached), dict(watch.nodes)
        watch.look_at(stored.name, lambda: self._content(stored))
        return (len(watch.reached), watch.nodes) != before

    def _content(self, stored: StoredObject) -> bytes:
        with self._store.blobs.open(stored.blob) as file:
            return file.read()

    def _objects_of_runs(self) -> Iterator[StoredObject]:
        names = self._store.database.rows(
            lambda bucket, name: (str(bucket), str(name)),
            "select bucket, name from objects where live = 1 and name >= 'runs/' and name < 'runs0' "
            "order by bucket, name",
        )
        for bucket, name in names:
            stored = self._store.objects.find(bucket, name)
            if stored:
                yield stored


class _Watch:
    """The condition of one fault, and the runs that have met it."""

    def __init__(self, fault: Fault) -> None:
        self.reached: set[str] = set()
        self.nodes: dict[str, tuple[int, str]] = {}
        """Run -> its latest attempt, and the id of the node that it is on."""
        self._runs: str = fault["run"]
        self._step: int | None = fault["step"]
        self._log = re.compile(fault["log"]) if fault["log"] else None
        self._incomplete: dict[str, str] = {}
        """RUN/WORKER -> the last line of its log, without its end."""
        self._readers = (
            (LOG, self._read_log),
            (ORDERED_LOG, self._read_log),
            (CHECKPOINT, self._read_checkpoint),
            (ATTEMPT, self._read_attempt),
        )

    def look_at(self, name: str, read: Callable[[], bytes]) -> None:
        """Look at one object."""
        for pattern, reader in self._readers:
            match = pattern.fullmatch(name)
            if match and fnmatchcase(match[1], self._runs):
                reader(match[1], match[2], read)

    def _read_attempt(self, run: str, attempt: str, read: Callable[[], bytes]) -> None:
        try:
            uid = str(json.loads(read())["tpu"]["uid"])
        except (ValueError, KeyError, TypeError):  # not a record of tpuctl
            return
        self.nodes[run] = max(self.nodes.get(run, (0, "")), (int(attempt), uid))
        if self._step is None and self._log is None:
            self.reached.add(run)

    def _read_checkpoint(self, run: str, name: str, _: Callable[[], bytes]) -> None:
        number = NUMBER.search(name)
        if self._step is not None and number and int(number[0]) >= self._step:
            self.reached.add(run)

    def _read_log(self, run: str, worker: str, read: Callable[[], bytes]) -> None:
        if run in self.reached or (self._step is None and self._log is None):
            return
        text = self._incomplete.get(f"{run}/{worker}", "") + read().decode(errors="replace")
        self._incomplete[f"{run}/{worker}"] = text.rpartition("\n")[2][-LONGEST_LINE:]
        if any(map(self._is_met_by, text.splitlines())):
            self.reached.add(run)

    def _is_met_by(self, line: str) -> bool:
        if self._log is not None and self._log.search(line):
            return True
        return self._step is not None and any(int(step) >= self._step for step in STEP.findall(line))
