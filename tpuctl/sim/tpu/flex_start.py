"""Checks requests for flex-start, whose fields the live v2alpha1 has and this client's messages have not.

https://cloud.google.com/tpu/docs/request-using-flex-start. In which zones it is offered was not found: every
zone of the type is taken for one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpuctl import accelerators
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at
from tpuctl.sim.world import api_error

FLEX_START = "FLEX_START"
LONGEST = 7 * 24 * 3600
"""Seconds of a run at most."""
GENERATIONS = ("v5e", "v6e")
OTHER_TIERS = ("spot", "guaranteed", "bestEffort", "reservationName")


def check(method: str, sent: JsonObject) -> None:
    """Raise INVALID_ARGUMENT for a request in JSON that asks for flex-start in a way that is not offered."""
    if method == "CreateNode" and object_at(sent, "schedulingConfig").get("provisioningModel") == FLEX_START:
        raise api_error("flex_start", reason="FLEX_START is only available through queued resources")
    if method == "CreateQueuedResource" and sent.get("provisioningModel") == FLEX_START:
        _check_queued(sent)


def _check_queued(sent: JsonObject) -> None:
    tier = next((name for name in OTHER_TIERS if name in sent), None)
    if tier:
        raise api_error("flex_start", reason=f"FLEX_START cannot be combined with {tier}")
    duration = _seconds(object_at(sent, "runDuration").get("maxRunDuration"))
    if not 0 < duration <= LONGEST:
        reason = f"run_duration.max_run_duration must be more than 0s and at most {LONGEST}s for FLEX_START"
        raise api_error("flex_start", reason=reason)
    for type_name in _types(sent):
        known = accelerators.catalogue().get(type_name)
        if known is None or known.generation not in GENERATIONS:
            raise api_error("flex_start", reason=f"FLEX_START is not available for {type_name}")


def _types(sent: JsonObject) -> Iterator[str]:
    specs = object_at(sent, "tpu").get("nodeSpec")
    for spec in specs if isinstance(specs, list) else ():
        node = object_at(spec, "node") if isinstance(spec, dict) else {}
        yield str(node.get("acceleratorType", ""))


def _seconds(duration: JsonValue) -> float:
    """Return a protobuf duration in JSON, `3600s`, in seconds; 0 for none and for any other text."""
    try:
        return float(str(duration or "").removesuffix("s"))
    except ValueError:
        return 0.0
