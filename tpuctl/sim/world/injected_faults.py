"""Decides which injected fault changes a call or an operation of the Cloud TPU API, stockouts included."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuctl.faults.kinds import CODES
from tpuctl.sim import resource_names
from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.world.api_errors import ApiError, Status, api_error, error_details

REJECTED_CALLS = ("api-off", "permission", "zone-denied", "unavailable", "deadline-exceeded", "error")
"""Kinds that answer a call with an error, in place of its effect."""
REJECTED_BY_METHOD = {"GetGuestAttributes": ("guest-attributes-off",)}
"""Method -> the kinds that answer it alone with an error."""
LOST_RESPONSES = ("unavailable", "deadline-exceeded", "error")
"""Kinds that answer a call with an error after it has taken effect."""
FAILED_OPERATIONS = dict.fromkeys(("CreateNode", "StartNode"), ("stockout", "failed-operation"))
"""Method -> the kinds that fail its operation, where there are several."""
VERB = re.compile(r"([A-Z][a-z]+)(\w+)")

Facts = Mapping[str, str]


@dataclass(frozen=True)
class OperationFault:
    """How faults change an operation."""

    error: Status | None = None
    """With which it fails."""
    delay: float = 0.0
    """Seconds by which it takes longer."""
    held_by: str = ""
    """The id of the fault that keeps it from ending."""


NO_FAULT = OperationFault()


def raise_before_call(faults: FaultRegistry, method: str, resource: str) -> None:
    """Raise the error of a fault that rejects this call."""
    kinds = (*REJECTED_CALLS, *REJECTED_BY_METHOD.get(method, ()))
    _raise_fault(faults, kinds, method, resource, "before")


def raise_after_call(faults: FaultRegistry, method: str, resource: str) -> None:
    """Raise the error of a fault that loses the response of this call, which has taken effect."""
    _raise_fault(faults, LOST_RESPONSES, method, resource, "after")


def is_unreachable(faults: FaultRegistry, project: str, zone: str) -> bool:
    """Whether a fault makes a zone unreachable."""
    return faults.fire("unreachable", project=project, zone=zone, resource=zone) is not None


def operation_fault(
    faults: FaultRegistry, method: str, resource: str, accelerator_type: str, usual_failure: float = 0.0
) -> OperationFault:
    """Return how faults change the operation that a call begins.

    `usual_failure`: seconds after which an operation fails, unless the fault names others.
    """
    facts = _facts(method, resource) | {"type": accelerator_type}
    error, delay = None, 0.0
    failing = faults.fire(*FAILED_OPERATIONS.get(method, ("failed-operation",)), **facts)
    if failing:
        error = error_of(failing, facts).status
        seconds = failing.get("seconds")
        delay += 0.0 if seconds is None else seconds - usual_failure
    slow = faults.fire("slow-operation", **facts)
    delay += slow["seconds"] if slow else 0.0
    held = faults.fire("stuck-operation", **facts)
    return OperationFault(error, delay, held.id if held else "")


def stockout(faults: FaultRegistry, resource: str, accelerator_type: str) -> bool:
    """Whether a fault lets the capacity of a zone be used up for a node that is about to be created."""
    return faults.fire("stockout", **_facts("CreateNode", resource), type=accelerator_type) is not None


def error_of(fault: Fault, facts: Facts) -> ApiError:
    """Return the error that a fault makes."""
    return ERRORS[fault.kind](fault, facts)


def permission_of(method: str) -> str:
    """Return the permission that a method needs: `tpu.nodes.create` for tpu.CreateNode."""
    service, _, name = method.partition(".")
    words = VERB.fullmatch(name) if service == "tpu" else None
    if words is None:
        return method
    noun = words[2].lower()
    return f"{service}.{noun if noun.endswith('s') else f'{noun}s'}.{words[1].lower()}"


def _raise_fault(
    faults: FaultRegistry, kinds: tuple[str, ...], method: str, resource: str, when: str
) -> None:
    if not faults.in_force(*kinds):
        return
    facts = _facts(method, resource) | {"when": when, "api": "tpu"}
    fault = faults.fire(*kinds, **facts)
    if fault:
        raise error_of(fault, facts)


def _facts(method: str, resource: str) -> dict[str, str]:
    try:
        name = resource_names.parse(resource)
        place = {"project": name.project, "zone": name.zone}
    except ValueError:  # the call itself will refuse such a name
        place = {"project": "", "zone": ""}
    return {"method": f"tpu.{method}", "resource": resource, **place}


def _error_of_fields(fault: Fault, _: Facts) -> ApiError:
    code = CODES.index(fault["code"]) + 1
    return ApiError(Status(code, fault["message"], error_details(fault["reason"], fault["metadata"])))


def _permission_denied(_: Fault, facts: Facts) -> ApiError:
    return api_error("permission", permission=permission_of(facts["method"]), resource=facts["resource"])


ERRORS: dict[str, Callable[[Fault, Facts], ApiError]] = {
    "stockout": lambda fault, facts: api_error(
        "reserved_stockout" if fault["reserved"] else "stockout", zone=facts["zone"]
    ),
    "api-off": lambda _, facts: api_error("api_disabled", project=facts["project"]),
    "permission": _permission_denied,
    "guest-attributes-off": lambda _, facts: api_error("no_guest_attributes", project=facts["project"]),
    "zone-denied": lambda _, facts: api_error("location", project=facts["project"], zone=facts["zone"]),
    "unavailable": lambda *_: api_error("unavailable"),
    "deadline-exceeded": lambda *_: api_error("deadline"),
    "error": _error_of_fields,
    "failed-operation": _error_of_fields,
}
"""Kind of fault -> the error that it makes."""
