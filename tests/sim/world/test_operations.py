"""Long-running operations in store: how they begin, end, repeat, are waited for and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.settings import Profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import ApiError, Code, state
from tpuctl.sim.world.api_errors import Status
from tpuctl.sim.world.injected_faults import OperationFault
from tpuctl.sim.world.resources import Node, Operation, QueuedResource, RequestContext
from tpuctl.sim.world.state import Operations

PARENT = "projects/p/locations/z"
QUEUED = QueuedResource(f"{PARENT}/queuedResources/q", "ACTIVE", 0.0, 0.0, {}, {})
ERROR = Status(Code.ABORTED, "no")


def node(name: str = "one", state: str = "READY") -> Node:
    return Node(f"{PARENT}/nodes/{name}", 1, state, 0.0, {}, ())


class Store:
    """Operations in a database, and the clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.time = ManualTime()
        self.path = folder / "world.sqlite"
        self.database = Database(self.path)
        self.operations = self.opened()

    def opened(self) -> Operations:
        """Return the operations as after a restart."""
        return Operations(self.database, Profile({}, clock=self.time.clock, sleep=self.time.sleep))

    def begin(self, name: str = "one", request_id: str = "", verb: str = "update") -> Operation:
        return self.operations.begin(verb, node(name), context=RequestContext(request_id=request_id))

    def run(self, name: str = "one", request_id: str = "") -> Operation:
        """Begin an operation, and end it a second later."""
        begun = self.begin(name, request_id)
        self.time.now += 1
        self.operations.end(begun, result=node(name))
        return self.operations.get(begun.name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.database.close()


def test_an_operation_begins_with_all_that_it_is_to_do(store: Store) -> None:
    fault = OperationFault(ERROR, 5.0, "f1")
    context = RequestContext("v2alpha1", "r1")
    begun = store.operations.begin(
        "update",
        node(),
        changes={"description": "d"},
        workers=(3,),
        fault=fault,
        context=context,
        vacant=True,
    )
    now = store.time.now
    assert vars(begun) == vars(
        Operation(
            name=begun.name,
            verb="update",
            target=f"{PARENT}/nodes/one",
            create_time=now,
            before="READY",
            changes={"description": "d"},
            workers=(3,),
            injected_error=ERROR,
            delay=5.0,
            held_by="f1",
            vacant=True,
            context=context,
        )
    )
    assert begun.name.startswith(f"{PARENT}/operations/operation-{int(now * 1000)}-")
    assert not begun.done
    assert [operation.name for operation in store.operations.running()] == [begun.name]


def test_an_operation_changes_nothing_and_works_on_no_worker_unless_it_is_told(store: Store) -> None:
    begun = store.begin()
    assert (begun.changes, begun.workers, begun.injected_error, begun.delay, begun.vacant) == (
        {}, (), None, 0.0, False,
    )  # fmt: skip


def test_the_end_of_an_operation_has_its_time_and_its_result(store: Store) -> None:
    begun, failing, queued = store.begin(), store.begin("two"), store.operations.begin("delete", QUEUED)
    store.time.now += 60
    store.operations.end(begun, result=node(state="STOPPED"))
    store.operations.end(failing, error=ERROR)
    store.operations.end(queued, result=QUEUED)
    one, two, three = (store.operations.get(operation.name) for operation in (begun, failing, queued))
    assert one.end_time == two.end_time == three.end_time == store.time.now
    assert one.result is not None
    assert (one.result.state, one.error, one.queued) == ("STOPPED", None, None)
    assert (two.result, two.error, two.queued) == (None, ERROR, None)
    assert three.queued is not None
    assert (three.queued.name, three.result, three.error) == (QUEUED.name, None, None)
    assert store.operations.running() == []


def test_a_cancel_that_was_asked_for_meanwhile_is_still_known_at_the_end(store: Store) -> None:
    begun = store.begin()
    cancelled = store.operations.request_cancel(begun)
    assert cancelled.cancel_requested
    store.operations.end(begun)
    assert store.operations.get(begun.name).cancel_requested


def test_a_target_has_one_operation_that_runs(store: Store) -> None:
    begun = store.begin()
    running = store.operations.running_on(begun.target)
    assert running is not None
    assert running.name == begun.name
    assert store.operations.running_on(f"{PARENT}/nodes/two") is None
    store.operations.end(begun)
    assert store.operations.running_on(begun.target) is None


def test_an_operation_is_found_by_its_name_and_listed_by_its_zone(store: Store) -> None:
    begun = store.begin()
    found = store.operations.find(begun.name)
    assert found is not None
    assert found.name == begun.name
    assert [operation.name for operation in store.operations.all(f"{PARENT}/")] == [begun.name]
    assert store.operations.all("projects/p/locations/other/") == []
    assert store.operations.find(f"{PARENT}/operations/none") is None


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (f"{PARENT}/operations/none", Code.NOT_FOUND, f"Resource '{PARENT}/operations/none' was not found"),
        ("none", Code.INVALID_ARGUMENT, "Invalid resource field value in the request: 'none'."),
        (
            f"{PARENT}/nodes/one",
            Code.INVALID_ARGUMENT,
            f"Invalid resource field value in the request: '{PARENT}/nodes/one'.",
        ),
    ],
)
def test_an_operation_that_is_not_there_is_not_found(
    store: Store, name: str, code: int, message: str
) -> None:
    for call in (store.operations.get, store.operations.delete):
        with pytest.raises(ApiError) as raised:
            call(name)
        assert (raised.value.status.code, raised.value.status.message) == (code, message)


def test_an_operation_is_deleted_once_it_has_ended(store: Store) -> None:
    begun = store.begin(request_id="r1")
    with pytest.raises(ApiError) as raised:
        store.operations.delete(begun.name)
    status = raised.value.status
    assert (status.code, status.message) == (
        Code.FAILED_PRECONDITION,
        f"The operation '{begun.name}' is still running.",
    )
    store.operations.end(begun)
    store.operations.delete(begun.name)
    assert store.operations.find(begun.name) is None
    assert store.operations.find_repeated("update", begun.target, begun.context) is None
    assert store.opened().all("") == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_is_repeated_if_verb_target_and_id_are_the_same(store: Store, restarted: bool) -> None:
    begun = store.begin(request_id="r1")
    store.begin("two")
    known = store.opened() if restarted else store.operations

    def repeated(verb: str, name: str, request_id: str) -> str | None:
        context = RequestContext(request_id=request_id)
        found = known.find_repeated(verb, f"{PARENT}/nodes/{name}", context)
        return found.name if found else None

    assert repeated("update", "one", "r1") == begun.name
    assert repeated("delete", "one", "r1") is None
    assert repeated("update", "two", "r1") is None
    assert repeated("update", "one", "r2") is None
    assert repeated("update", "two", "") is None, "a request without an id is never the same"


def test_a_restart_knows_what_runs_and_what_has_ended(store: Store) -> None:
    done, begun = store.run(), store.begin("two")
    again = store.opened()
    assert [operation.name for operation in again.running()] == [begun.name]
    assert again.running_on(done.target) is None
    assert again.get(done.name).done


@pytest.mark.parametrize("restarted", [False, True])
def test_so_many_ended_operations_can_be_read_and_those_that_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(state, "MAX_ENDED", 2)
    running = store.begin("running")
    first, second = store.run("a"), store.run("b")
    if restarted:
        store.operations = store.opened()
    assert store.operations.find(first.name) is not None
    third = store.run("c")
    left = {operation.name for operation in store.operations.all("")}
    assert left == {running.name, second.name, third.name}


def test_an_operation_that_was_deleted_takes_the_place_of_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_ENDED", 1)
    first = store.run("a")
    store.operations.delete(first.name)
    second = store.run("b")
    assert [operation.name for operation in store.operations.all("")] == [second.name]


def test_a_wait_ends_with_the_operation(store: Store) -> None:
    async def story() -> None:
        begun = store.begin()
        waits = [asyncio.ensure_future(store.operations.wait(begun.name, seconds)) for seconds in (None, 600)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        store.operations.end(begun)
        assert [(await wait).done for wait in waits] == [True, True]
        assert (await store.operations.wait(begun.name, None)).done

    asyncio.run(story())


def test_a_wait_that_is_over_before_shows_the_operation_as_it_is(store: Store) -> None:
    begun = store.begin()
    assert not asyncio.run(store.operations.wait(begun.name, 0)).done


def test_what_is_rolled_back_has_neither_begun_nor_ended(store: Store) -> None:
    begun = store.begin()

    def fail() -> None:
        with store.database.transaction():
            store.begin("two")
            store.operations.end(begun)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [operation.name for operation in store.operations.running()] == [begun.name]
    assert store.operations.running_on(f"{PARENT}/nodes/two") is None
    assert not store.operations.get(begun.name).done
