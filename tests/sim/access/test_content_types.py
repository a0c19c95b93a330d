"""Which bodies an API that takes JSON refuses: those that a web page may send without asking."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tpuctl.sim.access import json_bodies


def answered(body: bytes, content_type: str | None) -> tuple[int, object]:
    """Post a body to an API behind the middleware; return its status and JSON."""

    async def echo(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    async def run() -> tuple[int, object]:
        application = web.Application(middlewares=[json_bodies])
        application.router.add_post("/", echo)
        headers = {"Content-Type": content_type} if content_type else {}
        skipped = [] if content_type else ["Content-Type"]
        async with (
            TestClient(TestServer(application), skip_auto_headers=skipped) as client,
            client.post("/", data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    return asyncio.run(run())


FORM = "This API does not support parsing form-encoded input."


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("application/x-www-form-urlencoded", FORM),
        ("multipart/form-data; boundary=b", FORM),
        ("text/plain;charset=UTF-8", "Unsupported content with type: text/plain"),
    ],
)
def test_a_body_of_a_page_is_refused_and_an_empty_one_is_not(content_type: str, message: str) -> None:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    assert answered(b"{}", content_type) == (400, {"error": error})
    assert answered(b"", content_type) == (200, 0)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=UTF-8", "text/x", None]
)
def test_another_body_is_taken(content_type: str | None) -> None:
    assert answered(b"{}", content_type) == (200, 2)
