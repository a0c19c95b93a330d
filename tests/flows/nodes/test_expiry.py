"""The end of a TPU's --ttl: when it is, and how far it can be moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import CREATED, ZONE, MemoryProvider, node, queued_resource
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.nodes import lifetime as module
from tpuctl.flows.nodes.lifetime import Extension, expiry_of, plan_extension, require_time_left
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.nodes import HttpRequest, Node

BORN = datetime(2026, 1, 1, tzinfo=UTC)
TTL = {"tpuctl-ttl": "3600s"}
HOUR = timedelta(hours=1)
YEAR = 366 * 86400


def mortal(name: str = "n1", **fields: Any) -> Node:
    return node(name, **{"metadata": TTL, **fields})


class TestEnd:
    @pytest.mark.parametrize(
        ("metadata", "end"),
        [
            ({}, None), (TTL, BORN + HOUR),
            ({**TTL, "tpuctl-expires": "2026-01-01T05:00:00Z"}, BORN + 5 * HOUR),
            ({"tpuctl-ttl": "soon"}, None), ({"tpuctl-expires": "2026-13-01T05:00:00Z"}, None),
        ],
    )  # fmt: skip
    def test_metadata_says_when_a_node_ends(self, metadata: dict[str, str], end: datetime | None) -> None:
        assert expiry_of(node(metadata=metadata)) == end

    def test_a_ttl_counts_from_the_creation_of_a_node(self) -> None:
        assert expiry_of(mortal(created_at=0.0)) is None
        assert expiry_of(mortal(created_at=CREATED + 60)) == BORN + HOUR + timedelta(minutes=1)
        assert expiry_of(queued_resource(metadata=TTL, created_at=CREATED)) is None

    def test_the_first_node_that_ends_ends_all_of_it(self) -> None:
        nodes = (mortal(created_at=CREATED + 60), mortal(), node())
        assert module.expiry(Allocation(nodes)) == BORN + HOUR
        assert module.expiry(Allocation((node(),))) is None


@pytest.mark.parametrize(("seconds", "is_past"), [(3599, False), (3600, True), (3601, True)])
def test_a_node_past_its_end_is_not_started(seconds: int, is_past: bool) -> None:
    now = BORN + timedelta(seconds=seconds)
    if not is_past:
        require_time_left(mortal(), lambda: now)
        return
    with pytest.raises(StateError) as error:
        require_time_left(mortal(), lambda: now)
    assert error.value.message == (
        "'n1' is past its --ttl, which ended 2026-01-01T01:00:00Z: it would delete itself at boot."
    )
    assert error.value.hint == "Move its end first: tpuctl extend n1 8h"


def test_one_without_an_end_asks_nobody_for_the_time() -> None:
    require_time_left(node(), lambda: pytest.fail("asked"))


class TestExtension:
    def plan(self, item: Node, length: int = 60, now: datetime = BORN) -> Extension:
        return plan_extension(MemoryProvider(item), "n1", length, now)

    def test_it_begins_at_the_present_end_or_now(self) -> None:
        assert self.plan(mortal()).expires == BORN + HOUR + timedelta(seconds=60)
        late = BORN + 2 * HOUR
        assert self.plan(mortal(), now=late).expires == late + timedelta(seconds=60)
        assert self.plan(mortal(), now=late.replace(microsecond=999_999)).expires == late + timedelta(
            seconds=60
        )

    def test_a_year_from_now_is_the_longest(self) -> None:
        assert self.plan(mortal(), YEAR - 3600).expires == BORN + timedelta(seconds=YEAR)
        with pytest.raises(UsageError, match="'n1' would end more than a year from now"):
            self.plan(mortal(), YEAR - 3599)

    def test_one_without_an_end_has_none_to_move(self) -> None:
        with pytest.raises(StateError) as error:
            self.plan(node())
        assert error.value.message == "'n1' has no --ttl: it runs until 'tpuctl down n1'."
        with pytest.raises(StateError, match="it runs until 'terraform apply'"):
            self.plan(node(labels={"managed-by": "terraform"}))

    def test_one_without_nodes_has_not_begun_to_live(self) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource(metadata=TTL)
        with pytest.raises(
            StateError, match=r"^'q1' has no nodes yet: the time of --ttl begins with them"
        ) as error:
            plan_extension(provider, "q1", 60, BORN)
        assert error.value.hint == "Its state: 'tpuctl ls'."

    def test_the_zone_chooses(self) -> None:
        provider = MemoryProvider(mortal())
        assert plan_extension(provider, "n1", 60, BORN, ZONE).allocation.name == "n1"
        with pytest.raises(NotFoundError):
            plan_extension(provider, "n1", 60, BORN, "europe-west4-a")

    def test_every_node_gets_the_new_end_beside_its_metadata(self) -> None:
        provider = MemoryProvider(mortal(metadata={**TTL, "color": "blue"}))
        plan, lines = plan_extension(provider, "n1", 60, BORN), list[str]()
        assert module.requests(provider, plan) == [HttpRequest("UpdateNode", "n1")]
        module.extend(provider, plan, lines.append)
        changed = provider.nodes["n1"].metadata
        assert changed == {**TTL, "color": "blue", "tpuctl-expires": "2026-01-01T01:01:00Z"}
        assert lines == ["n1 ends 2026-01-01T01:01:00Z"]

    @pytest.mark.parametrize(
        ("stored", "is_changed"), [("05:59:59", True), ("06:00:00", False), ("07:00:00", False)]
    )
    def test_an_end_that_somebody_has_moved_farther_stays(self, stored: str, is_changed: bool) -> None:
        item = mortal(metadata={"tpuctl-expires": f"2026-01-01T{stored}Z"})
        plan = Extension(Allocation((item,)), BORN + 6 * HOUR)
        assert len(module.changes(plan)) == is_changed
        provider = MemoryProvider(item)
        module.extend(provider, plan, lambda line: None)
        kept = "06:00:00" if is_changed else stored
        assert provider.nodes["n1"].metadata["tpuctl-expires"] == f"2026-01-01T{kept}Z"
