"""What a creation or a deletion of TPUs would do, to be looked at before it is done."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.client.calls import Call, Stop
from tpuctl.client.context import Context
from tpuctl.client.nodes import changes, creation
from tpuctl.client.nodes.node import Node
from tpuctl.client.nodes.records import RequestInfo
from tpuctl.client.records import Cost, ProgressCallback
from tpuctl.flows.nodes import down as down_flow
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.nodes import HttpRequest


class NodePlan:
    """What `client.up` with the same options would do; nothing is done before `create`."""

    name: str
    accelerator: str
    hosts: int
    """Hosts of one slice; 0 for a type that is not in the catalogue."""
    chips: int
    """Chips of one slice; 0 for a type that is not in the catalogue."""
    exists: bool
    """Whether there is a TPU of this name, which is used."""
    zones: tuple[str, ...]
    """In the order in which they are tried."""

    def __init__(self, context: Context, plan: UpPlan) -> None:
        self._context = context
        self._plan = plan
        self.name = plan.options.name
        self.accelerator = plan.options.accelerator
        self.hosts = plan.hosts
        self.chips = plan.chips
        self.exists = plan.existing is not None
        self.zones = tuple(each.request.id.zone for each in plan.creations)

    @property
    def price_per_hour(self) -> Cost:
        """What it costs in the first zone."""
        return Cost._of(self._context.prices.of_creation(self._plan.creation))

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """What `create` would send."""
        return request_records(creation.requests(self._context, self._plan))

    def create(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Node:
        """Do it, and return the TPU once every host answers over SSH; raises as `up` does."""
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            return Node(self._context, creation.create(self._context, self._plan, call.line))


class DownPlan:
    """What `client.down` with the same names would delete; nothing is deleted before `delete`."""

    names: tuple[str, ...]

    def __init__(self, context: Context, plan: down_flow.DownPlan) -> None:
        self._context = context
        self._plan = plan
        self.names = tuple(item.name for item in plan.allocations)

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """What `delete` would send."""
        return request_records(changes.down_requests(self._context, self._plan))

    def delete(
        self, *, progress: ProgressCallback | None = None, stop: Stop | None = None
    ) -> tuple[str, ...]:
        """Delete all of it, and return the names."""
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            return self._delete(call.line)

    def _delete(self, report: Report) -> tuple[str, ...]:
        changes.down(self._context, self._plan, report)
        return self.names


def request_records(requests: Sequence[HttpRequest]) -> tuple[RequestInfo, ...]:
    """Return requests as records."""
    return tuple(RequestInfo(each.method, each.url, each.body) for each in requests)
