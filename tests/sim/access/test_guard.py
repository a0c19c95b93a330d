"""Who is admitted to the simulator: by the owner of the connection, by the secret, and no page of the web."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tpuctl.sim.access import Address, Guard, Secret, page_refusal, refused

CLIENT, SERVER = ("127.0.0.1", 50000), ("127.0.0.1", 80)
FOREIGN = "The request is refused: the simulator is for the user who started it alone."


class Connection(asyncio.Transport):
    """One end of an open connection, by its addresses."""

    def __init__(self, client: Address | None = CLIENT, server: Address | None = SERVER) -> None:
        super().__init__({"peername": client, "sockname": server})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


class Owners:
    """Says who owns a client's end, and counts how often it is asked."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.asked: list[tuple[Address, Address]] = []

    def __call__(self, client: Address, server: Address) -> int | None:
        self.asked.append((client, server))
        return self.uid


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


@pytest.mark.parametrize(
    ("uid", "trusted"), [(os.geteuid(), True), (os.getuid(), True), (0, True), (65_534, False), (None, False)]
)
def test_a_connection_of_this_user_or_of_root_is_trusted(
    secret: Secret, uid: int | None, trusted: bool
) -> None:
    guard = Guard(secret, Owners(uid))
    assert guard.knows_users
    assert guard.trusts(Connection()) is trusted
    assert guard.trusts_address(CLIENT, SERVER) is trusted
    assert guard.is_foreign_address(CLIENT, SERVER) is not trusted


def test_the_system_is_asked_once_a_connection(secret: Secret) -> None:
    owners = Owners(0)
    guard, connection = Guard(secret, owners), Connection(("::ffff:127.0.0.1", 50000), SERVER)
    assert guard.trusts(connection)
    assert guard.trusts(connection)
    assert owners.asked == [(CLIENT, SERVER)]


@pytest.mark.parametrize("connection", [None, Connection(None, SERVER), Connection(CLIENT, None)])
def test_a_connection_without_addresses_is_nobodys(secret: Secret, connection: Connection | None) -> None:
    assert not Guard(secret, Owners(0)).trusts(connection)


def test_a_connection_that_has_shown_the_secret_is_trusted(secret: Secret) -> None:
    guard, connection = Guard(secret, Owners(65_534)), Connection()
    assert not guard.trusts(connection)
    guard.trust(connection)
    assert guard.trusts(connection)


def test_where_the_system_does_not_tell_the_simulators_own_hops_are_trusted(secret: Secret) -> None:
    guard = Guard(secret, None)
    assert not guard.knows_users
    assert not guard.trusts(Connection())
    assert not guard.is_foreign_address(CLIENT, SERVER), "nobody knows"
    hop = Connection(SERVER, CLIENT)
    guard.add_hop(hop)
    assert guard.trusts_address(CLIENT, SERVER)
    hop.closing = True
    assert not guard.trusts_address(CLIENT, SERVER)


def test_a_connection_that_has_been_closed_is_foreign(secret: Secret) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert not Guard(secret, Owners(0)).is_foreign(accepted)
            assert Guard(secret, Owners(65_534)).is_foreign(accepted)
        assert Guard(secret, Owners(0)).is_foreign(accepted)


def refusal(guard: Guard, **headers: str) -> str:
    named = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return guard.refusal(make_mocked_request("GET", "/", headers=named, transport=Connection()))


def test_a_request_is_admitted_by_its_connection_or_by_the_secret(secret: Secret) -> None:
    own, other = Guard(secret, Owners(0)), Guard(secret, Owners(65_534))
    basic = base64.b64encode(f"user:{secret.text}".encode()).decode()
    assert (refusal(own), refusal(other)) == ("", FOREIGN)
    assert refusal(other, Authorization=f"Bearer {secret.text}") == ""
    assert refusal(other, Authorization=f"  bearer   {secret.text}  ") == ""
    assert refusal(other, Authorization=f"Basic {basic}") == ""
    wrong = base64.b64encode(f"{secret.text}:x".encode()).decode()
    for text in (
        f"Bearer {secret.text}x",
        secret.text,
        f"Basic {secret.text}",
        f"Basic {wrong}",
        f"Digest {secret.text}",
        "",
    ):
        assert refusal(other, Authorization=text) == FOREIGN


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": "https://evil.example"}, "it comes from a web page (Origin: https://evil.example)"),
        ({"Origin": "null"}, "it comes from a web page (Origin: null)"),
        ({"Origin": "bot:iap-tunneler"}, ""),
        ({"Sec-Fetch-Site": "same-origin"}, "it comes from a web page (Sec-Fetch-Site: same-origin)"),
        ({"Sec-Fetch-Site": "none"}, ""),
        ({"Host": "evil.example"}, "the simulator is not called evil.example"),
        ({"Host": "tunnel.cloudproxy.app"}, ""),
        ({"Host": "www.googleapis.com"}, ""),
    ],
)
def test_a_page_of_the_web_is_refused_whoever_sends_it(
    secret: Secret, headers: dict[str, str], reason: str
) -> None:
    request: Any = make_mocked_request("GET", "/", headers=headers, transport=Connection())
    assert page_refusal(request.headers) == reason
    assert Guard(secret, Owners(0)).refusal(request) == (
        f"The request is refused: {reason}." if reason else ""
    )


def test_a_refusal_is_googles_json() -> None:
    answer = refused("no")
    assert answer.status == 403
    assert json.loads(answer.text or "") == {
        "error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}
    }


def test_the_secret_is_kept_and_private(tmp_path: Path) -> None:
    first = Secret(tmp_path / "secret")
    assert len(first.text) >= 43, "32 bytes"
    assert Secret(tmp_path / "secret").text == first.text != Secret(tmp_path / "other").text
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
