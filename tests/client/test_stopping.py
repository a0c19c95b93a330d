"""Another thread or a callback's exception ends a call; several clients and threads at once, and asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl import Client, Progress, Stop
from tpuctl.errors import InterruptedByUser

T = TypeVar("T")
Start = Callable[[Callable[[], T]], "Future[T]"]
MINUTE = 60.0


class CallbackError(Exception):
    """What a progress callback of a user raises."""


class Mark:
    """A progress callback that sets an event at the first report that has some words."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._event = threading.Event()

    def __call__(self, progress: Progress) -> None:
        if self._words in progress.text:
            self._event.set()

    def wait(self) -> None:
        """Return once there was such a report."""
        assert self._event.wait(MINUTE)


@pytest.fixture
def begin() -> Iterator[Callable[[Callable[[], object]], Future[object]]]:
    """Begins a call in another thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="call") as pool:
        yield pool.submit


Begin = Callable[[Callable[[], object]], "Future[object]"]


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stop_ends_up_and_says_what_may_bill(
    client: Client, simulator: RunningSimulator, begin: Begin
) -> None:
    simulator.faults.add("stuck-operation", method="CreateNode")
    stop, mark = Stop(), Mark("creating")
    call = begin(lambda: client.up("v3-8", name="n1", progress=mark, stop=stop))
    mark.wait()
    stop.set()
    with pytest.raises(InterruptedByUser, match="'n1' was being created; it may bill") as caught:
        call.result(MINUTE)
    assert "tpuctl down n1" in caught.value.hint


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stop_ends_the_search_for_capacity(
    client: Client, simulator: RunningSimulator, begin: Begin
) -> None:
    simulator.faults.add("stockout")
    stop, mark = Stop(), Mark("capacity")
    call = begin(lambda: client.up("v3-8", name="n1", wait_capacity=3600, progress=mark, stop=stop))
    mark.wait()
    stop.set()
    with pytest.raises(InterruptedByUser):
        call.result(MINUTE)
    assert client.nodes() == ()


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_run_goes_on_when_who_waits_for_it_is_stopped(client: Client, script: Path, begin: Begin) -> None:
    client.up("v3-8", name="n1")
    run = client.submit(script, ["--wait"])
    stop, mark = Stop(), Mark("")
    call = begin(lambda: run.wait(progress=mark, stop=stop))
    mark.wait()
    stop.set()
    with pytest.raises(InterruptedByUser, match=f"run '{run.name}' goes on"):
        call.result(MINUTE)
    assert run.end is None
    end = run.cancel(grace=1)
    assert (end.outcome, end.is_restarted) == ("stopped", False)


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stop_ends_the_log_that_is_followed(client: Client, script: Path, begin: Begin) -> None:
    client.up("v3-8", name="n1")
    run = client.submit(script, ["--wait"])
    stop, seen, lines = Stop(), threading.Event(), list[str]()

    def follow() -> None:
        for line in run.logs(follow=True, stop=stop):
            lines.append(line.text)
            seen.set()

    call = begin(follow)
    assert seen.wait(MINUTE)
    stop.set()
    with pytest.raises(InterruptedByUser):
        call.result(MINUTE)
    assert lines == ["step 1 loss 0.5"]
    run.cancel(grace=1)


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stop_ends_a_command_on_the_hosts(client: Client, begin: Begin, tmp_path: Path) -> None:
    node = client.up("v3-8", name="n1")
    stop, said = Stop(), threading.Event()
    command = "echo $$; echo begun; sleep 3600"
    call = begin(lambda: node.exec(command, output=lambda *piece: said.set(), stop=stop))
    assert said.wait(MINUTE)
    stop.set()
    with pytest.raises(InterruptedByUser, match="it was ended on the hosts"):
        call.result(MINUTE)


@pytest.mark.usefixtures("no_thread_is_left")
def test_an_upload_that_is_stopped_publishes_nothing_and_the_next_completes_it(
    client: Client, table: Path
) -> None:
    stop = Stop()

    def end(progress: Progress) -> None:
        if progress.unit == "records" and progress.total and progress.done:
            stop.set()

    with pytest.raises(InterruptedByUser):
        client.upload("rows", table, shards=4, progress=end, stop=stop)
    assert client.datasets() == ()
    dataset = client.upload("rows", table, shards=4)
    assert dataset.info.records == 4000
    dataset.verify(deep=True)


@pytest.mark.usefixtures("no_thread_is_left")
def test_an_exception_of_the_callback_ends_an_upload_and_is_raised(client: Client, table: Path) -> None:
    error = CallbackError("no more")

    def fail(progress: Progress) -> None:
        raise error

    with pytest.raises(CallbackError) as caught:
        client.upload("rows", table, progress=fail)
    assert caught.value is error
    assert client.datasets() == ()


@pytest.mark.usefixtures("no_thread_is_left")
def test_an_exception_of_the_callback_in_the_middle_of_up_is_raised(client: Client) -> None:
    def fail(progress: Progress) -> None:
        if "SSH" in progress.text:
            raise ValueError(progress.text)  # which flows take for a bad answer of a host

    with pytest.raises(ValueError, match="waiting for SSH") as caught:
        client.up("v3-8", name="n1", progress=fail)
    (note,) = caught.value.__notes__
    assert "it may bill" in note
    assert "tpuctl down n1" in note
    assert [node.name for node in client.nodes()] == ["n1"]


@pytest.mark.daily
@pytest.mark.usefixtures("no_thread_is_left")
def test_an_exception_of_the_callback_in_a_copy_is_raised(client: Client) -> None:
    client.up("v3-8", name="n1")
    Path("data").write_bytes(bytes(1 << 20))

    def fail(progress: Progress) -> None:
        assert progress.worker is not None, progress
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        client.cp("data", "n1:", progress=fail)


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_call_with_a_stop_that_is_set_does_nothing(client: Client) -> None:
    stop = Stop()
    assert not stop.is_set()
    stop.set()
    with pytest.raises(InterruptedByUser, match=r"^The call was stopped\.$"):
        client.up("v3-8", stop=stop)
    assert stop.is_set()
    assert client.nodes() == ()


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stop_ends_only_the_calls_that_have_it(client: Client, script: Path, begin: Begin) -> None:
    client.up("v3-8", name="n1")
    run = client.submit(script, ["--wait"])
    stop = Stop()
    first, second = Mark(""), Mark("")
    call = begin(lambda: run.wait(progress=first, stop=stop))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: run.wait(progress=second))
        first.wait()
        second.wait()
        stop.set()
        with pytest.raises(InterruptedByUser):
            call.result(MINUTE)
        assert not other.done()
        run.cancel(grace=1)
        assert other.result(MINUTE).outcome == "stopped"


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_submission_that_is_stopped_before_it_starts_anything_leaves_no_run(
    client: Client, script: Path
) -> None:
    client.up("v3-8", name="n1")
    stop = Stop()
    with pytest.raises(InterruptedByUser):
        client.submit(script, progress=lambda progress: stop.set(), stop=stop)
    assert client.runs() == ()


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_signal_handler_may_stop_a_call_whatever_it_interrupts() -> None:
    stop, ended = Stop(), threading.Event()

    class Interrupted(threading.Event):
        def set(self) -> None:
            if not ended.is_set():
                ended.set()
                stop.set()  # as a handler would that comes while the same thread is here

    def interrupted() -> None:
        with stop._stopping(Interrupted()):
            stop.set()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(MINUTE)
    assert not thread.is_alive()


@pytest.mark.daily
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
