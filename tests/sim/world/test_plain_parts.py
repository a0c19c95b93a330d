"""The plain parts of the simulated world: the database, tables, pages, addresses, profiles."""

from __future__ import annotations

import asyncio
import stat
import string
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.sim.settings import DELAYS, Profile, profile
from tpuctl.sim.state import Database, RecordTable
from tpuctl.sim.world import ApiError, resources
from tpuctl.sim.world.api_errors import ERRORS
from tpuctl.sim.world.change_notifier import ChangeNotifier
from tpuctl.sim.world.resources import page
from tpuctl.sim.world.state import (
    CANCELLABLE,
    LOST,
    NODE_ALLOWED,
    NODE_TRANSITIONS,
    QUEUED_RESOURCE_ALLOWED,
    QUEUED_RESOURCE_NEXT,
    SERVING,
)


@dataclass(frozen=True)
class Numbered:
    name: str
    value: int


def test_a_committed_record_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    first = Database(tmp_path / "db")
    RecordTable(first, "numbered", Numbered).put(Numbered("a", 1))
    assert first.next("counter") == 1
    second = Database(tmp_path / "db")  # while the first is still open, as after a kill
    assert RecordTable(second, "numbered", Numbered).all() == [Numbered("a", 1)]
    assert second.next("counter") == 2
    first.close()
    second.close()


def test_a_counter_begins_where_it_is_told_and_never_goes_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    database.begin("counter", 7)
    assert database.next("counter") == 8
    database.begin("counter", 3)
    assert database.next("counter") == 9
    database.close()


def test_a_transaction_that_raises_leaves_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")

    def broken() -> None:
        with database.transaction():
            database.put("numbered", "a", b"{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert database.load("numbered") == []
    database.close()


def test_a_transaction_that_raises_restores_the_records(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    table = RecordTable(database, "numbered", Numbered)
    table.put(Numbered("old", 1))

    def broken() -> None:
        with database.transaction():
            table.put(Numbered("old", 2))
            with database.transaction():  # a part of the other
                table.put(Numbered("new", 1))
            table.remove("old")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert table.all() == [Numbered("old", 1)] == RecordTable(database, "numbered", Numbered).all()
    database.close()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    database.put("numbered", "a", b"{}")
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    database.close()


def test_a_table_finds_records_by_prefix_and_forgets_removed_ones(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    table = RecordTable(database, "numbered", Numbered)
    for name in ("a/1", "a/2", "b/1"):
        table.put(Numbered(name, 0))
    table.remove("a/1")
    assert [record.name for record in table.all("a/")] == ["a/2"]
    assert table.get("a/1") is None
    database.close()


def test_addresses_start_at_127_77_0_1_and_never_end_in_0_or_255() -> None:
    assert resources.address(1) == "127.77.0.1"
    assert resources.address(254) == "127.77.0.254"
    assert resources.address(255) == "127.77.1.1"
    every = [resources.address(number) for number in range(1, 64 * 256 * 254 + 1, 97)]
    network = IPv4Network("127.64.0.0/10")
    assert all(IPv4Address(address) in network for address in every)
    assert not [address for address in every if address.endswith((".0", ".255"))]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ("projects/p/locations/z", "projects/p/locations/z/"),
        ("projects/p/locations/-", "projects/p/locations/"),
        ("projects/p/locations/z/operations", "projects/p/locations/z/"),
    ],
)
def test_a_parent_is_a_prefix_of_what_is_in_it(parent: str, expected: str) -> None:
    assert resources.list_prefix(parent) == expected


def test_an_invalid_parent_is_refused() -> None:
    with pytest.raises(ApiError):
        resources.list_prefix("projects/p")


def test_pages_cover_everything_once_in_order() -> None:
    collected, token = [], ""
    for _ in range(4):
        listed, token = page(["c", "a", "e", "b", "d"], str, 2, token)
        collected += listed
        if not token:
            break
    assert collected == ["a", "b", "c", "d", "e"]


def test_every_state_of_a_transition_has_its_row_of_allowed_calls() -> None:
    for transition in NODE_TRANSITIONS.values():
        assert {transition.during, transition.after} - {None} <= set(NODE_ALLOWED)
    calls = {_camel(call) for call in set().union(*NODE_ALLOWED.values())}
    assert calls - {"preempt", "getGuestAttributes"} == set(NODE_TRANSITIONS) - {"create"}
    assert set(NODE_TRANSITIONS) >= CANCELLABLE


def test_every_state_of_a_queued_resource_has_its_rows() -> None:
    assert set(QUEUED_RESOURCE_ALLOWED) == set(QUEUED_RESOURCE_NEXT)
    assert set().union(*QUEUED_RESOURCE_NEXT.values()) <= set(QUEUED_RESOURCE_NEXT)
    for state, calls in QUEUED_RESOURCE_ALLOWED.items():
        assert "force delete" in calls or state == "DELETING"
        assert "reset" not in calls or "SUSPENDING" in QUEUED_RESOURCE_NEXT[state]
        assert ("DELETING" in QUEUED_RESOURCE_NEXT[state]) == ("force delete" in calls)
    assert {state for state, calls in QUEUED_RESOURCE_ALLOWED.items() if "delete" in calls} == {
        "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED",
    }  # fmt: skip
    assert set(NODE_ALLOWED) >= SERVING | LOST


def test_waiting_tasks_are_woken_by_a_change_or_by_the_clock() -> None:
    async def story() -> list[str]:
        woken: list[str] = []
        notifier = ChangeNotifier(Profile({}, clock=lambda: 100.0, sleep=lambda _: asyncio.sleep(0)))

        async def sleeper(name: str, until: float | None) -> None:
            await notifier.wait(until)
            woken.append(name)

        timed, untimed = (
            asyncio.ensure_future(sleeper(*arguments)) for arguments in (("clock", 101.0), ("call", None))
        )
        await timed
        assert woken == ["clock"]
        notifier.notify()
        await untimed
        return woken

    assert asyncio.run(story()) == ["clock", "call"]


def test_every_error_says_where_its_text_is_from() -> None:
    assert all(template.source for template in ERRORS.values())
    for template in ERRORS.values():
        fields = [field for _, field, _, _ in string.Formatter().parse(template.text)]
        assert all(field is None or field.isidentifier() for field in fields)


def test_a_pause_lasts_for_the_rest_of_the_transition() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = Profile({"create": 60}, scale=0.5, clock=lambda: 110.0, sleep=sleep)
    asyncio.run(pace.pause("create", since=100.0))
    asyncio.run(pace.pause("create", since=10.0))
    asyncio.run(pace.pause("delete", since=100.0))
    assert slept == [20.0]


def test_a_profile_has_every_transition_or_none() -> None:
    queue = {"accept", "queue", "retry", "suspend", "dequeue"}
    assert set(DELAYS["real"]) == {*NODE_TRANSITIONS, "failure", "chips", *queue}
    assert set(profile("instant").delays) == {"retry", "chips"}
    with pytest.raises(UsageError, match="slow"):
        profile("slow")


def _camel(call: str) -> str:
    first, *others = call.split()
    return first + "".join(word.capitalize() for word in others)
