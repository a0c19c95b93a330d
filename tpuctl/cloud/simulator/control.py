"""The client of a running simulator's control server: adds, lists and removes faults."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from tpuctl.errors import DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.faults import Request, Value
from tpuctl.simulator_folder import SimulatorFolder

FAULTS = "/v1/faults"
ANSWER_TIMEOUT = 30.0
ERRORS = {400: UsageError, 404: NotFoundError}


class ActiveFault(msgspec.Struct, frozen=True):
    """A fault that the simulator keeps, and its progress."""

    id: str
    kind: str
    options: dict[str, Value]
    state: str
    """`waiting` for its time, `in force`, `over`, or `spent`: its count has been used up."""
    taken: int
    """How often it has fired."""
    left: int | None
    """How often it can still fire; None: without limit."""
    origin: str
    """`command`, or the name of its scenario."""


class _Server(msgspec.Struct, frozen=True):
    """control.json: the address of the control server, and the token that it requires."""

    url: str
    token: str


class _Response(msgspec.Struct, frozen=True):
    """Faults, or the message of an error."""

    faults: list[ActiveFault] = []
    message: str = ""
    hint: str = ""


class ControlClient:
    """A client of the simulator that serves `folder`; raises StateError when it has no control server."""

    def __init__(self, folder: Path) -> None:
        try:
            self._server = msgspec.json.decode(SimulatorFolder(folder).control.read_bytes(), type=_Server)
        except (OSError, msgspec.DecodeError) as error:
            raise StateError(
                "The simulator that runs is of another version.", hint="Stop it: tpuctl sim stop"
            ) from error

    def faults(self) -> list[ActiveFault]:
        """Return every fault that is not over, oldest first."""
        return self._send("GET", FAULTS).faults

    def add(self, requests: Sequence[Request], scenario: str | None = None) -> list[ActiveFault]:
        """Add faults and return them; those of a scenario replace those of an earlier scenario."""
        return self._send("POST", FAULTS, {"faults": requests, "scenario": scenario}).faults

    def remove(self, identifier: str) -> None:
        """Remove one fault; raises NotFoundError."""
        self._send("DELETE", f"{FAULTS}/{quote(identifier, safe='')}")

    def clear(self) -> None:
        """Remove every fault."""
        self._send("DELETE", FAULTS)

    def _send(self, method: str, path: str, content: Mapping[str, object] | None = None) -> _Response:
        body = b"" if content is None else msgspec.json.encode(content)
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=ANSWER_TIMEOUT)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._server.token}"})
            with connection.getresponse() as reply:
                response = msgspec.json.decode(reply.read(), type=_Response)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise DeadlineError(
                "The simulator does not answer.", hint="'tpuctl sim status' shows it."
            ) from error
        finally:
            connection.close()
        if reply.status >= 400:
            raise ERRORS.get(reply.status, StateError)(response.message, hint=response.hint)
        return response
