"""Makes the node of a whole run, or finds the one it has, and plans the submission to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.nodes.creation_options import Machine, warn_of_secrets
from tpuctl.cli.nodes.up import ask
from tpuctl.cli.nodes.zone_options import price_text
from tpuctl.cli.progress import show_late_count, show_steps
from tpuctl.cli.session import Session
from tpuctl.client.nodes import creation
from tpuctl.client.runs import submission
from tpuctl.client.runs.busy import Policy
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.expiry import require_time_left
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, on_node, read_header
from tpuctl.flows.runs.whole import machine
from tpuctl.flows.runs.whole.stage import node_name
from tpuctl.nodes import Node


@dataclass(frozen=True)
class WholeRun:
    """What the user asks `run` for."""

    run: str
    request: SubmitRequest
    """With the name of the run."""
    typed: tuple[str, ...]
    """The words of the command that continues."""
    folder: Path
    """Where its files go."""
    types: Sequence[str] | None
    """Accelerator types of the node to make, in order; none for those of the header. None for no node."""
    machine: Machine
    zones: tuple[str, ...]
    wait: int
    lifetime: Lifetime
    is_deleted: bool
    """Whether the node is deleted at the end."""
    policy: Policy
    yes: bool
    is_named: bool = False
    """Whether the user has named the run, so that an earlier command may have begun it."""


class Outset:
    """What a whole run begins with."""

    def __init__(self, session: Session, whole: WholeRun) -> None:
        self._session = session
        self._whole = whole
        self._cloud = session.cloud

    def planned(self, node: Node | None = None) -> SubmitPlan:
        """Return the plan of the submission, on a node or on one that fits; says what is to be said of it."""
        with show_late_count() as report:
            plan = submission.plan(self._session.context, self._whole.request, report, node)
        for text in plan.notes:
            output.note(text)
        return plan

    def make_node(self, creating: Callable[[str, str], None]) -> SubmitPlan:
        """Return the plan on the node that is made, or is there; what can refuse it is read first.

        `creating` gets the node's name before it may bill, and its zone once it is there.
        """
        ups, cloud = self.up_plans(), self._cloud
        first = ups[0]
        if first.stopped:
            require_time_left(first.stopped, cloud.server_time)
        plan = self.planned(machine.planned_node(first))
        for other in ups[1:]:
            price = price_text(self._session, other)
            output.note(f"Without capacity: {other.request.accelerator} instead, {price} per hour.")
        ask(self._session, first, yes=self._whole.yes, more=self.facts, question=self._question(first))
        creating(first.options.name, "")
        with show_steps() as report:
            allocation = machine.acquire(cloud.provider, cloud.ssh, ups, report)
        creating(allocation.name, allocation.zone)
        self._session.listed.add("nodes", allocation.name)
        return on_node(plan, allocation.nodes[0], cloud.data_bucket)

    def up_plans(self) -> list[UpPlan]:
        """Return a plan for each type, in order; for a node that exists, that of its type alone."""
        session, whole = self._session, self._whole
        header = read_header(whole.request.script).tpuctl
        name, types = node_name(whole.run), self._types(header.accelerators)
        plans = list[UpPlan]()
        for accelerator in self._existing(name, types) or types:
            options = whole.machine(accelerator=accelerator, name=name, framework=header.framework)
            whole.lifetime.check(slices=1, scopes=options.scopes)
            search = creation.search_of(
                session.context,
                options,
                whole.zones,
                race=False,
                wait=whole.wait,
                detach=False,
            )
            lifetime = creation.limited(session.context, options, whole.lifetime, search)
            options = replace(
                options, lifetime=lifetime, bucket=session.config.get("bucket"), run=whole.run,
                typed=whole.typed,
            )  # fmt: skip
            plans.append(creation.plan_of(session.context, options, search))
        warn_of_secrets(plans[0].options)
        return plans

    def _types(self, of_header: Sequence[str]) -> list[str]:
        """Return the types as the API names them; raises UsageError without any."""
        configured = self._session.config.get("accelerator")
        names = self._whole.types or of_header or ([configured] if configured else [])
        if not names:
            raise UsageError(
                "There is no TPU type.", hint="Name one: --up v3-8, or accelerator in the header."
            )
        return [accelerators.accelerator(name).type for name in names]

    def _existing(self, name: str, types: Sequence[str]) -> list[str]:
        """Return the type of the node that an earlier command has made, if it is one of several."""
        if len(types) == 1:
            return []
        listed = take_inventory(self._cloud.provider).nodes
        return [node.accelerator for node in listed if node.name == name and node.accelerator in types][:1]

    @property
    def facts(self) -> Mapping[str, str]:
        """What is shown besides the node that is made."""
        end = "is deleted" if self._whole.is_deleted else "stays, and bills, until 'tpuctl down'"
        return {
            "run": f"{self._whole.run}: {self._whole.request.script}",
            "results": str(self._whole.folder),
            "afterwards": f"the TPU {end}",
        }

    def _question(self, plan: UpPlan) -> str:
        end = ", and delete it afterwards" if self._whole.is_deleted else ""
        return f"Create {plan.options.name}, run {self._whole.request.script} there{end}?"
