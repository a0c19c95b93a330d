"""The way to a running simulator's control door: faults in and out."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from tpuctl.errors import DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.faults import Request

FILE = "control.json"
FAULTS = "/v1/faults"
TIMEOUT = 30.0
ERRORS = {400: UsageError, 404: NotFoundError}


class _Door(msgspec.Struct, frozen=True):
    """control.json: where the door is, and the token that opens it."""

    url: str
    token: str


class _Answer(msgspec.Struct, frozen=True):
    """What the door says: faults, or what is wrong."""

    faults: list[dict[str, Any]] = []
    message: str = ""
    hint: str = ""


class Control:
    """The control door of the simulator that serves `folder`; raises StateError when it has none."""

    def __init__(self, folder: Path) -> None:
        try:
            self._door = msgspec.json.decode((folder / FILE).read_bytes(), type=_Door)
        except (OSError, msgspec.DecodeError) as error:
            raise StateError(
                "The simulator that runs is of another version.", hint="Start it anew: tpuctl sim stop"
            ) from error

    def faults(self) -> list[dict[str, Any]]:
        """Return every fault that is not over, oldest first."""
        return self._ask("GET", FAULTS).faults

    def add(self, requests: Sequence[Request], scenario: str | None = None) -> list[dict[str, Any]]:
        """Put faults in force and return them; those of a scenario take the place of an earlier one's."""
        return self._ask("POST", FAULTS, {"faults": requests, "scenario": scenario}).faults

    def remove(self, identifier: str) -> None:
        """Drop one fault; raises NotFoundError."""
        self._ask("DELETE", f"{FAULTS}/{quote(identifier, safe='')}")

    def clear(self) -> None:
        """Drop every fault."""
        self._ask("DELETE", FAULTS)

    def _ask(self, method: str, path: str, content: Any = None) -> _Answer:
        body = b"" if content is None else msgspec.json.encode(content)
        connection = http.client.HTTPConnection(urlsplit(self._door.url).netloc, timeout=TIMEOUT)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._door.token}"})
            response = connection.getresponse()
            answer = msgspec.json.decode(response.read(), type=_Answer)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise DeadlineError(
                "The simulator does not answer.", hint="'tpuctl sim status' shows it."
            ) from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ERRORS.get(response.status, StateError)(answer.message, hint=answer.hint)
        return answer
