"""The state that the parts of the simulated Cloud TPU share: the stored records, and how they change."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world.change_notifier import ChangeNotifier
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.resources import Node, QueuedResource


@dataclass(frozen=True)
class State:
    """Everything that a service of the world reads and changes; `load` builds it once.

    Nodes and queued resources are read from their shelves and changed by the methods here, which also write
    the event log and wake whoever waits for a change.
    """

    database: Database
    profile: Profile
    hosts: Hosts
    faults: FaultRegistry
    events: Events
    nodes: RecordTable[Node]
    queued_resources: RecordTable[QueuedResource]
    operations: Operations
    notifier: ChangeNotifier

    @classmethod
    def load(
        cls, database: Database, profile: Profile, hosts: Hosts, faults: FaultRegistry, events: Events
    ) -> State:
        """Read the records of the database."""
        return cls(
            database,
            profile,
            hosts,
            faults,
            events,
            nodes=RecordTable(database, "node", Node),
            queued_resources=RecordTable(database, "queued resource", QueuedResource),
            operations=Operations(database, profile),
            notifier=ChangeNotifier(profile),
        )

    def save_node(self, node: Node) -> None:
        """Store a node, in place of the one of the same name."""
        before = self.nodes.get(node.name)
        self.nodes.put(node)
        if before is None or before.state != node.state:
            self.events.note("transition", node.state, node.name)
        self.notifier.notify()

    def remove_node(self, name: str) -> None:
        """Remove a node's record."""
        self.nodes.remove(name)
        self._note_transition("DELETED", name)

    def save_queued_resource(self, queued: QueuedResource) -> None:
        """Store a queued resource that has entered a state, in place of the one of the same name."""
        self.queued_resources.put(queued)
        self._note_transition(queued.state, queued.name)

    def remove_queued_resource(self, name: str) -> None:
        """Remove a queued resource's record."""
        self.queued_resources.remove(name)
        self._note_transition("DELETED", name)

    def _note_transition(self, state: str, name: str) -> None:
        self.events.note("transition", state, name)
        self.notifier.notify()
