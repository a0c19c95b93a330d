"""What runs show in the bucket: the steps in their logs and checkpoints, and on which node they run."""

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
ATTEMPT = re.compile(r"runs/([^/]+)/attempts/(\d+)/attempt\.json")
STEP = re.compile(r"(?<![a-z])step\b\W{0,3}(\d+)", re.IGNORECASE)
"""`step 120`, `Step: 120/1000`, `global_step=120`."""
NUMBER = re.compile(r"\d+")
LONGEST_LINE = 4096
"""Characters of a line of a log that is not complete yet."""


class Sightings:
    """Follows runs for those faults that wait for something to be shown."""

    def __init__(self, store: Store, shown: Callable[[], None]) -> None:
        self._store = store
        self._shown = shown
        self._watches: dict[str, _Watch] = {}

    def watch(self, faults: list[Fault]) -> None:
        """Follow runs for exactly these faults; what is in the buckets already counts for new ones."""
        wanted = {fault.id: fault for fault in faults if fault.get("run")}
        self._watches = {one: watch for one, watch in self._watches.items() if one in wanted}
        for identifier, fault in wanted.items():
            if identifier not in self._watches:
                watch = self._watches[identifier] = _Watch(fault)
                for stored in self._stored():
                    self._look(watch, stored)

    def see(self, stored: StoredObject) -> None:
        """Look at an object that has just been written."""
        if self._watches and stored.name.startswith("runs/"):
            seen = [self._look(watch, stored) for watch in self._watches.values()]
            if any(seen):
                self._shown()

    def nodes(self, fault: Fault) -> set[str]:
        """Return the ids of the nodes on which runs run that have shown what the fault waits for."""
        watch = self._watches.get(fault.id)
        return {watch.nodes[run][1] for run in watch.shown if run in watch.nodes} if watch else set()

    def _look(self, watch: _Watch, stored: StoredObject) -> bool:
        before = len(watch.shown), dict(watch.nodes)
        watch.look(stored.name, lambda: self._content(stored))
        return (len(watch.shown), watch.nodes) != before

    def _content(self, stored: StoredObject) -> bytes:
        with self._store.blobs.open(stored.blob) as file:
            return file.read()

    def _stored(self) -> Iterator[StoredObject]:
        names = self._store.database.rows(
            lambda bucket, name: (str(bucket), str(name)),
            "select bucket, name from objects where live = 1 and name >= 'runs/' and name < 'runs0' "
            "order by bucket, name",
        )
        for bucket, name in names:
            found = self._store.objects.find(bucket, name)
            if found:
                yield found


class _Watch:
    """What one fault waits for, and the runs that have shown it."""

    def __init__(self, fault: Fault) -> None:
        self.shown: set[str] = set()
        self.nodes: dict[str, tuple[int, str]] = {}
        """Run -> its latest attempt, and the id of the node that it is on."""
        self._runs: str = fault["run"]
        self._step: int | None = fault["step"]
        self._log = re.compile(fault["log"]) if fault["log"] else None
        self._rest: dict[str, str] = {}
        self._shapes = (
            (LOG, self._see_log),
            (CHECKPOINT, self._see_checkpoint),
            (ATTEMPT, self._see_attempt),
        )

    def look(self, name: str, read: Callable[[], bytes]) -> None:
        """Look at one object."""
        for shape, see in self._shapes:
            found = shape.fullmatch(name)
            if found and fnmatchcase(found[1], self._runs):
                see(found[1], found[2], read)

    def _see_attempt(self, run: str, attempt: str, read: Callable[[], bytes]) -> None:
        try:
            uid = str(json.loads(read())["tpu"]["uid"])
        except (ValueError, KeyError, TypeError):  # no record of ours
            return
        self.nodes[run] = max(self.nodes.get(run, (0, "")), (int(attempt), uid))
        if self._step is None and self._log is None:
            self.shown.add(run)

    def _see_checkpoint(self, run: str, name: str, _: Callable[[], bytes]) -> None:
        number = NUMBER.search(name)
        if self._step is not None and number and int(number[0]) >= self._step:
            self.shown.add(run)

    def _see_log(self, run: str, worker: str, read: Callable[[], bytes]) -> None:
        if run in self.shown or (self._step is None and self._log is None):
            return
        text = self._rest.get(f"{run}/{worker}", "") + read().decode(errors="replace")
        self._rest[f"{run}/{worker}"] = text.rpartition("\n")[2][-LONGEST_LINE:]
        if any(map(self._says, text.splitlines())):
            self.shown.add(run)

    def _says(self, line: str) -> bool:
        if self._log is not None and self._log.search(line):
            return True
        return self._step is not None and any(int(step) >= self._step for step in STEP.findall(line))
