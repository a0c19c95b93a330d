"""Tests looking for capacity in one zone after another: what is tried again, when, and what is left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemorySsh
from tests.flows.nodes.placement.zoned_provider import ZonedProvider
from tests.flows.nodes.test_up import KEY, OPTIONS
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    InterruptedByUser,
    QuotaError,
    StockoutError,
    TpuctlError,
)
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import plan_up
from tpuctl.flows.nodes.up import up
from tpuctl.nodes import Change, CreateNode, CreateQueuedResource, QueueState

A, B = "us-central1-a", "us-central1-b"
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _no_waiting(passing_time: PassingTime) -> None:
    """Waits take no time."""


class Refusing(ZonedProvider):
    """Answers creates in some zones with an error."""

    def __init__(self, zones: dict[str, int], errors: dict[str, TpuctlError]) -> None:
        super().__init__(zones)
        self.errors = errors
        self.tried: list[str] = []
        self.on_create: Callable[[], None] = lambda: None  # type: ignore[assignment]

    def begin(self, change: Change) -> Operation:
        if isinstance(change, (CreateNode, CreateQueuedResource)):
            zone = change.request.id.zone
            self.tried.append(zone)
            self.on_create()  # type: ignore[call-arg]
            if zone in self.errors:
                raise self.errors[zone]
        return super().begin(change)


def run(
    provider: ZonedProvider, *zones: str, reports: list[str] | None = None, queued: bool = False,
    wait: float = 0.0, detach: bool = False,
) -> Allocation:  # fmt: skip
    search = Search(zones, zones, wait=wait, detach=detach)
    plan = plan_up(provider, KEY, msgspec.structs.replace(OPTIONS, owner="ada", queued=queued), search)
    report = [].append if reports is None else reports.append  # type: ignore[var-annotated]
    return up(provider, MemorySsh(), plan, report)  # type: ignore[arg-type]


def test_capacity_that_comes_back_is_taken_after_growing_pauses(passing_time: PassingTime) -> None:
    provider, reports = Refusing({A: 0, B: 0}, {}), list[str]()

    def come_back() -> None:
        provider.capacity[B] = int(len(provider.tried) > 6)

    provider.on_create = come_back  # type: ignore[assignment]
    assert run(provider, A, B, reports=reports, wait=HOUR).zone == B
    assert provider.tried == [A, B] * 4
    assert [pause for pause in passing_time.pauses if pause >= 30] == [30.0, 45.0, 67.5]
    rounds = [line for line in reports if "attempt" in line]
    assert [line.partition(" ")[2] for line in rounds] == [
        f"no capacity in {A}, {B} (attempt {number})" for number in (1, 2, 3)
    ]


def test_after_the_time_it_is_a_stockout_that_names_the_zones(passing_time: PassingTime) -> None:
    provider = Refusing({A: 0, B: 0}, {})
    with pytest.raises(StockoutError, match=f"There is no capacity in any of {A}, {B}"):
        run(provider, A, B, wait=HOUR)
    assert HOUR - 330 < passing_time.now <= HOUR + 30
    assert (provider.placed, provider.queues) == ({}, {})


def test_a_provider_that_is_silent_for_a_while_ends_no_wait_for_capacity() -> None:
    provider, reports = Refusing({A: 1, B: 1}, {A: DeadlineError("No answer.", hint="Later.")}), list[str]()

    def answer_again() -> None:
        if len(provider.tried) == 3:
            provider.errors.clear()

    provider.on_create = answer_again  # type: ignore[assignment]
    assert run(provider, A, B, reports=reports, wait=HOUR).zone == A
    assert provider.tried == [A, A, A], "what was begun late is looked for there before another is created"
    assert [line.partition(" ")[2] for line in reports if "No answer" in line] == ["No answer."] * 2


@pytest.mark.parametrize(("wait", "least"), [(0.0, 1), (HOUR, 10)])
def test_a_provider_that_stays_silent_is_the_error_after_the_time(wait: float, least: int) -> None:
    provider = Refusing({A: 1}, {A: DeadlineError("No answer.", hint="Later.")})
    with pytest.raises(DeadlineError, match=r"^No answer\.$") as silent:
        run(provider, A, wait=wait)
    assert silent.value.hint == "Later."
    assert least <= len(provider.tried) < 20 * least


def test_quota_0_takes_a_zone_out_of_the_rounds() -> None:
    provider = Refusing({A: 1, B: 0}, {A: QuotaError("Limit: 0.", granted=False)})
    with pytest.raises(StockoutError, match=r"Limit: 0\."):
        run(provider, A, B, wait=HOUR)
    assert provider.tried.count(A) == 1
    assert provider.tried.count(B) > 5


def test_quota_0_everywhere_ends_at_once() -> None:
    provider = Refusing({A: 1}, {A: QuotaError("Limit: 0.", granted=False)})
    with pytest.raises(QuotaError):
        run(provider, A, wait=HOUR)
    assert provider.tried == [A]


def test_a_quota_that_is_used_up_is_tried_again() -> None:
    provider = Refusing({A: 1}, {A: QuotaError("Limit: 8.", granted=True)})
    with pytest.raises(QuotaError):
        run(provider, A, wait=HOUR)
    assert len(provider.tried) > 5


def test_a_missing_permission_ends_at_once() -> None:
    provider = Refusing({A: 1, B: 1}, {A: ConfigError("No permission.")})
    with pytest.raises(ConfigError):
        run(provider, A, B, wait=HOUR)
    assert provider.tried == [A]


def test_a_zone_that_the_project_may_not_use_is_left_out() -> None:
    provider = Refusing({A: 1, B: 1}, {A: ConfigError("Not here.", scope="zone")})
    assert run(provider, A, B, wait=HOUR).zone == B


def test_a_queue_without_capacity_is_left_for_the_next_zone(passing_time: PassingTime) -> None:
    provider = Refusing({A: 0, B: 1}, {})
    assert run(provider, A, B, queued=True).zone == B
    left = [place for place, queued in provider.queues.items() if queued.state is not QueueState.DELETING]
    assert left == [(B, "n1")]
    assert passing_time.now >= 150


def test_after_the_time_a_request_is_taken_out_of_the_only_queue(passing_time: PassingTime) -> None:
    provider = Refusing({A: 0}, {})
    with pytest.raises(StockoutError, match="within 1h; its request is out of the queue again"):
        run(provider, A, queued=True, wait=HOUR)
    assert all(queued.state is QueueState.DELETING for queued in provider.queues.values())


def test_a_request_that_gets_its_nodes_at_the_last_moment_is_kept() -> None:
    class Late(Refusing):
        def begin(self, change: Change) -> Operation:
            self.capacity[A] = 1
            return super().begin(change)

    provider = Late({A: 0}, {})
    assert run(provider, A, queued=True, wait=1.0).zone == A


def test_a_provider_that_is_silent_for_a_while_ends_no_wait_in_a_queue() -> None:
    class Silent(Refusing):
        looks = 0

        def get_queued_resource(self, queued_resource):  # type: ignore[no-untyped-def]
            self.looks += 1
            if self.looks < 5:
                raise DeadlineError("No answer.")
            return super().get_queued_resource(queued_resource)

    reports = list[str]()
    assert run(Silent({A: 1}, {}), A, queued=True, reports=reports).zone == A
    assert reports.count(f"no answer about n1 from {A}; asking again") == 1


def test_detach_leaves_when_the_request_is_accepted() -> None:
    provider = Refusing({A: 0}, {})
    queued = run(provider, A, queued=True, detach=True).queued_resource
    assert queued is not None
    assert queued.state is QueueState.WAITING


@pytest.mark.parametrize("moment", range(1, 40))
def test_ctrl_c_at_each_request_says_what_may_bill_and_both_commands(moment: int) -> None:
    class Interrupted(Refusing):
        requests_sent = -4  # those of the plan

        def _turn(self) -> None:
            self.requests_sent += 1
            if self.requests_sent == moment:
                raise KeyboardInterrupt
            super()._turn()

    provider = Interrupted({A: 0, B: 1}, {})
    ended = ended_by(lambda: run(provider, A, B))
    if isinstance(ended, InterruptedByUser):
        assert "may bill already" in ended.message
        resume = f"tpuctl up v3-8 --name n1 --framework jax --no-queued --zone {A} --zone {B}"
        assert ended.hint == f"Resume: {resume}\nDelete it: tpuctl down n1"
        assert ended.facts["may_bill"] == [f"n1 in {A}", f"n1 in {B}"]
    elif isinstance(ended, KeyboardInterrupt):
        assert (provider.placed, provider.queues) == ({}, {}), "while it is planned, nothing is sent"


def ended_by(work: Callable[[], object]) -> BaseException | None:
    """Return what ended some work before its end."""
    try:
        work()
    except (TpuctlError, KeyboardInterrupt) as error:
        return error
    return None


def test_a_node_that_is_being_created_in_another_zone_is_waited_for_first() -> None:
    provider = Refusing({A: 1, B: 1}, {})
    run(provider, B, detach=True)
    provider.tried.clear()
    assert run(provider, A, B).zone == B
    assert provider.tried == []


def test_where_no_zone_may_be_used_the_first_refusal_says_what_helps() -> None:
    quota = QuotaError("Quota 0.", hint="Ask for quota.", granted=False)
    denied = ConfigError("Not allowed.", hint="Ask an admin.", scope="zone")
    for errors, first in (({A: quota, B: denied}, quota), ({A: denied, B: quota}, denied)):
        with pytest.raises(TpuctlError) as refused:
            run(Refusing({A: 1, B: 1}, dict(errors)), A, B)  # type: ignore[arg-type]
        assert type(refused.value) is type(first)
        assert refused.value.message.startswith(f"There is no capacity in any of {A}, {B}. ")
        assert refused.value.hint == first.hint
        assert refused.value.facts["zones"] == [A, B]
