"""What calls and operations of the Cloud TPU API meet when faults were asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Problem, Status, detailed, problem

REFUSALS = ("api-off", "permission", "zone-denied", "unavailable", "deadline-exceeded", "error")
LOST_ANSWERS = ("unavailable", "deadline-exceeded", "error")
FAILURES = dict.fromkeys(("CreateNode", "StartNode"), ("stockout", "failed-operation"))
"""Method -> the kinds by which its operation can fail, where there is more than one."""
VERB = re.compile(r"([A-Z][a-z]+)(\w+)")

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Ending:
    """How an operation was asked to end."""

    error: Status | None = None
    delay: float = 0.0
    """Seconds that it takes longer than it would."""
    held: str = ""
    """The id of the fault that keeps it from ending."""


FREELY = Ending()
"""An operation that nothing was asked of."""


def require_admission(faults: FaultRegistry, method: str, resource: str) -> None:
    """Raise what was asked for instead of this call."""
    _raise_asked(faults, REFUSALS, method, resource, "before")


def lose_answer(faults: FaultRegistry, method: str, resource: str) -> None:
    """Raise what was asked for in place of the answer of this call, which has taken effect."""
    _raise_asked(faults, LOST_ANSWERS, method, resource, "after")


def is_unreachable(faults: FaultRegistry, project: str, zone: str) -> bool:
    """Whether a zone was asked not to answer."""
    return faults.fire("unreachable", project=project, zone=zone, resource=zone) is not None


def ending(
    faults: FaultRegistry, method: str, resource: str, accelerator_type: str, usual_failure: float = 0.0
) -> Ending:
    """Return how the operation that this call begins was asked to end; failures usually take so long."""
    facts = _facts(method, resource) | {"type": accelerator_type}
    error, delay = None, 0.0
    failing = faults.fire(*FAILURES.get(method, ("failed-operation",)), **facts)
    if failing:
        error = of_fault(failing, facts).status
        seconds = failing.get("seconds")
        delay += 0.0 if seconds is None else seconds - usual_failure
    slow = faults.fire("slow-operation", **facts)
    delay += slow["seconds"] if slow else 0.0
    held = faults.fire("stuck-operation", **facts)
    return Ending(error, delay, held.id if held else "")


def of_fault(fault: Fault, facts: Facts) -> Problem:
    """Return the error that a fault asks for."""
    return PROBLEMS[fault.kind](fault, facts)


def permission_of(method: str) -> str:
    """Return the permission that a method needs: `tpu.nodes.create` for tpu.CreateNode."""
    service, _, name = method.partition(".")
    found = VERB.fullmatch(name) if service == "tpu" else None
    if found is None:
        return method
    noun = found[2].lower()
    return f"{service}.{noun if noun.endswith('s') else f'{noun}s'}.{found[1].lower()}"


def _raise_asked(
    faults: FaultRegistry, kinds: tuple[str, ...], method: str, resource: str, when: str
) -> None:
    if not faults.in_force(*kinds):
        return
    facts = _facts(method, resource) | {"when": when, "api": "tpu"}
    fault = faults.fire(*kinds, **facts)
    if fault:
        raise of_fault(fault, facts)


def _facts(method: str, resource: str) -> dict[str, str]:
    place = names.PLACE.fullmatch(resource)
    project, zone = (place[1], place[2] or "") if place else ("", "")
    return {"method": f"tpu.{method}", "resource": resource, "project": project, "zone": zone}


def _written_out(fault: Fault, _: Facts) -> Problem:
    code = CODES.index(fault["code"]) + 1
    return Problem(Status(code, fault["message"], detailed(fault["reason"], fault["metadata"])))


def _no_permission(_: Fault, facts: Facts) -> Problem:
    return problem("permission", permission=permission_of(facts["method"]), resource=facts["resource"])


PROBLEMS: dict[str, Callable[[Fault, Facts], Problem]] = {
    "stockout": lambda fault, facts: problem(
        "reserved_stockout" if fault["reserved"] else "stockout", zone=facts["zone"]
    ),
    "api-off": lambda _, facts: problem("api_disabled", project=facts["project"]),
    "permission": _no_permission,
    "zone-denied": lambda _, facts: problem("location", project=facts["project"], zone=facts["zone"]),
    "unavailable": lambda *_: problem("unavailable"),
    "deadline-exceeded": lambda *_: problem("deadline"),
    "error": _written_out,
    "failed-operation": _written_out,
}
"""Kind of fault -> the error it makes."""
