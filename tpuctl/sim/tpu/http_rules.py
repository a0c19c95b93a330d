"""Reads the HTTP rules of the methods from the official client: from a path to a request message."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from google.cloud.tpu_v2.services.tpu.transports import rest_base
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tpuctl import accelerators
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at
from tpuctl.sim.tpu.grpc_api import MIXINS, rpcs
from tpuctl.sim.world import api_error

UNKNOWN = re.compile(r'has no field named "(?P<name>[^"]*)" at "[^".]*\.?(?P<place>[^"]*)"')
FAILED = re.compile(r"Failed to parse (\w+) field")
FLEX_START = "FLEX_START"
LONGEST = 7 * 24 * 3600
"""Seconds of a run at most."""
GENERATIONS = ("v5e", "v6e")
OTHER_TIERS = ("spot", "guaranteed", "bestEffort", "reservationName")
V1_METHODS = frozenset(
    {
        "GetLocation",
        "ListLocations",
        "GetAcceleratorType",
        "ListAcceleratorTypes",
        "GetOperation",
        "ListOperations",
    }
)
"""Methods that stock gcloud still calls under /v1, where they are the same."""

ALPHA_RULES: tuple[tuple[str, str, str], ...] = (
    (
        "SimulateMaintenanceEvent",
        "post",
        "/v2/{name=projects/*/locations/*/nodes/*}:simulateMaintenanceEvent",
    ),
    ("PerformMaintenance", "post", "/v2/{name=projects/*/locations/*/nodes/*}:performMaintenance"),
    (
        "PerformMaintenanceQueuedResource",
        "post",
        "/v2/{name=projects/*/locations/*/queuedResources/*}:performMaintenanceQueuedResource",
    ),
    ("ListReservations", "get", "/v2/{parent=projects/*/locations/*}/reservations"),
)
"""Methods that only v2alpha1 has: its client has no REST transport to read their rules from (these are
gcloud's), while all others have the paths of v2."""

LIVE_FIELDS: dict[str, dict[str, frozenset[str]]] = {
    "CreateQueuedResource": {
        "provisioningModel": frozenset({"STANDARD", "SPOT"}),
        "runDuration": frozenset(),
    },
}
"""Fields that the live v2alpha1 has and this client's does not: gcloud always sends this one, next to the
tier. The values that repeat the tier are accepted, others refused."""

SYSTEM_PARAMETERS = frozenset(
    {
        "alt",
        "access_token",
        "callback",
        "fields",
        "key",
        "oauth_token",
        "prettyPrint",
        "quotaUser",
        "uploadType",
        "upload_protocol",
    }
)
"""Query parameters of every Google API, which are not fields of the request (those with $ neither)."""


@dataclass(frozen=True)
class Route:
    """One HTTP rule of a method."""

    method: str
    version: str
    verb: str
    uri: str
    """Of v2: `/v2/{parent=projects/*/locations/*}/nodes`."""
    path: re.Pattern[str]
    body: str
    """The field that the body holds, `*` for the complete request, or '' for no body."""
    request: type[Message]

    def message(self, path: Mapping[str, str], query: Mapping[str, Sequence[str]], body: bytes) -> Message:
        """Return the request message; raises INVALID_ARGUMENT for fields that do not fit it."""
        fields: JsonObject = {}
        if self.body:
            sent = _json(body)
            if self.version == "v2alpha1":
                check(self.method, sent)
            fields = sent if self.body == "*" else {self.body: self._without_live_fields(sent)}
        for key, values in query.items():
            if not key.startswith("$") and key not in SYSTEM_PARAMETERS:
                _set(fields, key, _query_value(self.request, key, values))
        for group, value in path.items():
            _set(fields, group.replace("__", "."), value)
        return parse(fields, self.request)

    def _without_live_fields(self, sent: JsonObject) -> JsonObject:
        """Leave out the fields that this client's messages do not have yet."""
        live = LIVE_FIELDS.get(self.method, {}) if self.version == "v2alpha1" else {}
        for name, harmless in live.items():
            if sent.get(name) not in (None, *harmless):
                raise api_error("unimplemented", feature=f"{name} {sent[name]}")
        return {name: value for name, value in sent.items() if name not in live}


@cache
def routes() -> tuple[Route, ...]:
    """Return the routes of every method of both versions."""
    return (
        *_routes("v2", _rules(), lambda method: "v[12]" if method in V1_METHODS else "v2"),
        *_routes("v2alpha1", [*_rules(), *_alpha_rules()], lambda _: "v2alpha1"),
    )


def _rules() -> list[tuple[str, dict[str, str]]]:
    """Return each method of the client's REST transport, with its HTTP rule."""
    return [
        (name.removeprefix("_Base"), rule)
        for name, member in inspect.getmembers(rest_base._BaseTpuRestTransport, inspect.isclass)
        if hasattr(member, "_get_http_options")
        for rule in member._get_http_options()
    ]


def _alpha_rules() -> list[tuple[str, dict[str, str]]]:
    return [
        (method, {"method": verb, "uri": uri, "body": "*" if verb == "post" else ""})
        for method, verb, uri in ALPHA_RULES
    ]


def _routes(
    version: str, rules: Sequence[tuple[str, dict[str, str]]], path_version: Callable[[str], str]
) -> list[Route]:
    requests = {rpc.name: rpc.request for rpc in [*rpcs(version), *MIXINS]}
    return [
        Route(
            method,
            version,
            rule["method"].upper(),
            rule["uri"],
            _pattern(rule["uri"], path_version(method)),
            rule.get("body", ""),
            requests[method],
        )
        for method, rule in rules
    ]


def _pattern(uri: str, version: str) -> re.Pattern[str]:
    """`/v2/{node.name=projects/*}` -> `/v2/(?P<node__name>projects/[^/]+)`"""

    def group(match: re.Match[str]) -> str:
        return f"(?P<{match[1].replace('.', '__')}>{match[2].replace('*', '[^/]+')})"

    return re.compile(re.sub(r"\{([\w.]+)=([^}]+)\}", group, uri).replace("/v2/", f"/{version}/", 1))


def _json(body: bytes) -> JsonObject:
    try:
        sent = json.loads(body or b"{}")
    except ValueError as error:
        raise api_error("bad_json", reason=str(error)) from None
    if not isinstance(sent, dict):
        raise api_error("bad_json", reason="Root element must be a message.")
    return sent


def _set(fields: JsonObject, path: str, value: JsonValue) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        inner = fields.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise api_error("bad_json", reason=f"{parent} is not a message.")
        fields = inner
    fields[leaf] = value


def _query_value(request: type[Message], key: str, values: Sequence[str]) -> JsonValue:
    """Return the JSON form of a query parameter, by the type of the field that it names."""
    field = _query_field(request, key)
    last = values[-1]
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"true": True, "false": False}.get(last.lower(), last)  # gcloud sends True
    if field.message_type and field.message_type.full_name == "google.protobuf.FieldMask":
        return re.sub(
            r"_([a-z])", lambda match: match[1].upper(), last
        )  # JSON has network_config as networkConfig
    return last


def _query_field(request: type[Message], path: str) -> FieldDescriptor:
    """Return the field at a path such as `update_mask` or `node.networkConfig`; raises INVALID_ARGUMENT."""
    field: FieldDescriptor | None = None
    fields: Iterable[FieldDescriptor]
    fields = request.DESCRIPTOR.fields  # type: ignore[assignment]  # the stubs have two classes for one
    for part in path.split("."):
        field = next((field for field in fields if part in (field.name, field.camelcase_name)), None)
        if field is None:
            raise api_error("bad_json", reason=f'Unknown name "{path}": Cannot bind query parameter.')
        fields = field.message_type.fields if field.message_type else ()
    assert field is not None
    return field


# Checks requests for flex-start, whose fields the live v2alpha1 has and this client's messages have not.
#
# https://cloud.google.com/tpu/docs/request-using-flex-start. In which zones it is offered was not found:
# every zone of the type is taken for one.


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


# Reads the JSON of requests as Google's front does, which is laxer than proto3's JSON.


def parse(fields: JsonObject, message: type[Message]) -> Message:
    """Return the message of a JSON object; raises INVALID_ARGUMENT.

    A repeated field may be a single value, as `node_spec` is in Google's own examples:
    https://cloud.google.com/tpu/docs/queued-resources.
    """
    descriptor: Descriptor = message.DESCRIPTOR  # type: ignore[assignment]  # two classes for one
    try:
        return json_format.ParseDict(_listed(fields, descriptor), message())
    except json_format.ParseError as error:
        raise api_error("bad_json", reason=_reason(str(error))) from None


def _listed(fields: JsonObject, message: Descriptor) -> JsonObject:
    """Return an object with single values of repeated fields in lists, at every level."""
    by_name = {name: field for field in message.fields for name in (field.name, field.json_name)}
    return {
        name: _value(value, by_name[name]) if name in by_name else value for name, value in fields.items()
    }


def _value(value: JsonValue, field: FieldDescriptor) -> JsonValue:
    inner = field.message_type
    if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith("google.protobuf."):
        return value
    if isinstance(value, dict):
        return [_listed(value, inner)] if field.is_repeated else _listed(value, inner)
    if isinstance(value, list):
        return [_listed(item, inner) if isinstance(item, dict) else item for item in value]
    return value


def _reason(text: str) -> str:
    """Return Google's words for an error of the parser, without Python's."""
    unknown, failed = UNKNOWN.search(text), FAILED.findall(text)
    if unknown:
        place = f" at '{unknown['place']}'" if unknown["place"] else ""
        return f'Unknown name "{unknown["name"]}"{place}: Cannot find field.'
    return f"Invalid value at '{'.'.join(failed)}'." if failed else text.partition("\n")[0]
