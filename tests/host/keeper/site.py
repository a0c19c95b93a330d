"""What tests of keepers look at: their notes, the nodes that exist, and the records in the bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts.network import HostDisk

Command = Callable[..., CommandResult]
FAST = Backoff(0.05, 0.2)


class Keepers:
    """The keepers of a simulator whose clock the test moves."""

    def __init__(self, simulator: RunningSimulator, bucket: Bucket) -> None:
        self.simulator = simulator
        self.bucket = bucket

    def names(self) -> list[str]:
        """Return the names of the nodes that exist."""
        return [node.name.rpartition("/")[2] for node in self.simulator.world.nodes.all()]

    def note(self, worker: int = 0, node: str = "n1") -> dict[str, Any]:
        """Return what the keeper of a worker published last; nothing before its first note."""
        hosts = [item.hosts() for item in self.simulator.world.nodes.all() if item.name.endswith(f"/{node}")]
        if not hosts:
            return {}
        attributes = self.simulator.simulator.hosts.guest_attributes(hosts[0][worker])
        notes = [item.value for item in attributes if (item.namespace, item.key) == ("tpuctl", "keeper")]
        return json.loads(notes[0]) if notes else {}

    def disk(self, worker: int = 0) -> HostDisk:
        """Return the disk of a worker of the only node."""
        (node,) = self.simulator.world.nodes.all()
        return HostDisk(self.simulator.folder / "hosts", node.hosts()[worker])

    def wait(self, condition: Callable[[], object], awaiting: str) -> None:
        """Return once a condition holds."""
        poll(lambda: condition() or None, awaiting=awaiting, timeout=60, backoff=FAST)

    def wait_for_look(self, worker: int = 0) -> dict[str, Any]:
        """Return the note of a look that began after now, with the metadata as they are now."""
        advanced = self.simulator.simulator.clock.now()
        self.simulator.simulator.clock.advance(2)  # a look before now has an older time
        from tpuctl.host.keeper.records import moment

        self.wait(
            lambda: self.note(worker) and moment(self.note(worker)["at"]) > advanced + 1, "another look"
        )
        return self.note(worker)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.simulator.simulator.clock.advance(seconds)

    def wait_for_end(self) -> None:
        """Return once no node exists."""
        self.wait(lambda: not self.names(), "the end of the nodes")

    def records(self) -> list[dict[str, Any]]:
        """Return the records of deletions, by name."""
        return [json.loads(self.bucket.read(item.name)) for item in self.bucket.objects("nodes/")]

    def log(self) -> str:
        """Return what the keeper on the only node's first worker has logged."""
        return (self.disk().view / "run/tpuctl-keeper/keeper.log").read_text()

    def processes(self) -> list[int]:
        """Return the ids of the keepers' processes on the only node's first worker."""
        folder = self.disk().view / "run/tpuctl-keeper"
        return [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _is_in(path, folder)
        ]


def _is_in(cmdline: Path, folder: Path) -> bool:
    try:
        words = cmdline.read_bytes().split(b"\0")
        return words[1:3] == [b"-I", b"keeper.zip"] and (cmdline.parent / "cwd").readlink() == folder
    except OSError:  # it has ended, or is another user's
        return False
