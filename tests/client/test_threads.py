"""Tests several clients at once, one client in several threads, and calls from asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.running_simulator import RunningSimulator
from tpuctl import Client


def test_threads_share_a_client(client: Client, script: Path) -> None:
    def outcome(name: str) -> str:
        client.up("v3-8", name=name)
        run = client.submit(script, node=name, name=f"run-{name}")
        return run.wait().outcome

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(outcome, ("n1", "n2", "n3"))) == ["succeeded"] * 3
    assert {info.node for info in client.runs()} == {"n1", "n2", "n3"}


def test_two_clients_at_once_see_the_same(simulator: RunningSimulator) -> None:
    with Client() as first, Client() as second:
        with ThreadPoolExecutor(2) as pool:
            made = list(pool.map(lambda client: client.up("v3-8", name="n1").name, (first, second)))
        assert made == ["n1", "n1"]
        first.close()
        assert [node.name for node in second.nodes()] == ["n1"]


def test_clients_of_two_zones_see_their_own(simulator: RunningSimulator) -> None:
    with Client(zone="europe-west4-a") as here, Client(zone="us-central1-b") as there, Client() as both:
        here.up("v3-8", name="n1")
        there.up("v3-8", name="n2")
        assert [node.name for node in here.nodes()] == ["n1"]
        assert [node.name for node in there.nodes()] == ["n2"]
        assert [node.name for node in both.nodes()] == ["n1", "n2"]


def test_calls_run_in_threads_of_asyncio(client: Client, script: Path) -> None:
    async def main() -> list[str]:
        nodes = [asyncio.to_thread(client.up, "v3-8", name=name) for name in ("n1", "n2")]
        await asyncio.gather(*nodes)
        runs = [client.submit(script, node=name, name=f"run-{name}") for name in ("n1", "n2")]
        ends = await asyncio.gather(*(asyncio.to_thread(run.wait) for run in runs))
        return [end.outcome for end in ends]

    assert asyncio.run(main()) == ["succeeded", "succeeded"]
