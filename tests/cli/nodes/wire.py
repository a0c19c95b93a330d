"""Compares what --dry-run prints with what the simulated API received, both as request messages."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from google.protobuf.json_format import MessageToDict

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.sim.tpu.http_rules import routes

Request = tuple[str, dict[str, Any]]
"""Method, and the request message in its JSON form."""

ROUTES = routes()


def printed(dry_run: CommandResult) -> list[Request]:
    """Return the requests that a dry run printed with --json, parsed as the API parses them."""
    assert dry_run.code == 0, dry_run.err
    return [_parsed(request) for request in dry_run.json["requests"]]


def received(simulator: RunningSimulator, after: int = 0) -> list[Request]:
    """Return the requests to change something that came after an event, in their order."""
    return [
        (event.what, _without_id(event.body))
        for event in list(simulator.events)
        if event.kind == "request" and event.body is not None and event.number > after
    ]


def _parsed(request: dict[str, Any]) -> Request:
    url = urlsplit(request["url"])
    if url.path.startswith("/upload/storage/"):
        return "objects.create", _without_id(request["body"])
    assert (url.scheme, url.netloc) == ("https", "tpu.googleapis.com")
    for route in ROUTES:
        match = route.path.fullmatch(url.path) if route.verb == request["method"] else None
        if match:
            body = b"" if request.get("body") is None else json.dumps(request["body"]).encode()
            message = route.message(match.groupdict(), parse_qs(url.query), body)
            return route.method, _without_id(MessageToDict(message))
    raise AssertionError(f"no method of the API has {request['method']} {url.path}")


def _without_id(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out what each command makes anew: the id of a request, and the time in the name of an object."""
    if "requestId" in message:
        UUID(message["requestId"])
    if "crc32c" in message or str(message.get("name")).startswith("nodes/"):
        return {"name": re.sub(r"-\d{4}-.*Z\.json", "", message["name"])}
    return {name: value for name, value in message.items() if name != "requestId"}
