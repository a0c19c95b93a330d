"""Prices of requests and nodes: what is multiplied, what is unknown, and how often a list is read."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgspec

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node
from tpuctl.accelerators import accelerator
from tpuctl.catalogue.prices import OwnPrice, Price, Rate, RateList
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.errors import ConfigError
from tpuctl.flows.nodes.options import UpOptions, creation
from tpuctl.flows.nodes.plan import RESERVED, Prices
from tpuctl.nodes import NodeSpec, SshKey

RATES = RateList(
    (Rate("v3", False, None, ("us-central1",), Decimal(2), "USD", "v3"),), "the list", "2026-11-22T12:00:00Z"
)
OPTIONS = UpOptions("v3-8", "n1", "ada@example.com", framework="jax")


def prices(*own: OwnPrice) -> Prices:
    return Prices(own, lambda _generation: RATES)


def price_of(options: UpOptions) -> Price:
    return prices().of_creation(
        creation(MemoryProvider(), options, ZONE, "base", SshKey("ada", "ssh-ed25519 A"))
    )


def test_a_request_costs_all_its_slices() -> None:
    assert price_of(OPTIONS).amount == 8
    assert price_of(msgspec.structs.replace(OPTIONS, slices=3)).amount == 24


def test_spot_costs_what_spot_costs_or_is_unknown() -> None:
    assert price_of(msgspec.structs.replace(OPTIONS, spot=True)).amount is None


def test_reserved_capacity_has_a_contract_of_its_own() -> None:
    for options in (
        msgspec.structs.replace(OPTIONS, reserved=True),
        msgspec.structs.replace(OPTIONS, reservation="r1"),
    ):
        assert str(price_of(options)) == "unknown: reserved capacity costs what its contract says"


def test_a_node_costs_what_its_type_costs_in_its_zone() -> None:
    assert prices().of(node("n1", accelerator="v3-8")).amount == 8
    assert prices().of(node("n1", accelerator="v99-8")).reason.endswith("does not know v99-8")


def test_the_configuration_comes_first_and_then_no_list_is_read() -> None:
    def refuse(generation: str) -> RateList:
        raise AssertionError(generation)

    row = OwnPrice("v3", "", Decimal(1), None, "EUR", "tpuctl.toml, line 2")
    price = Prices([row], refuse).price(accelerator("v3-8"), ZONE, spot=False)
    assert str(price) == "4.00 EUR (tpuctl.toml, line 2)"


def test_a_list_that_cannot_be_read_makes_prices_unknown_and_is_tried_once() -> None:
    reads = []

    def fail(generation: str) -> RateList:
        reads.append(generation)
        raise ConfigError("There are no Google Cloud credentials on this machine.")

    book = Prices([], fail)
    for _ in range(2):
        price = book.price(accelerator("v3-8"), ZONE, spot=False)
    assert str(price) == "unknown: There are no Google Cloud credentials on this machine"
    assert reads == ["v3"]


def test_a_record_gets_the_price_that_this_machine_knows_without_asking() -> None:
    def refuse(generation: str) -> RateList:
        raise AssertionError(generation)

    machine = node("n1", accelerator="v3-8")
    assert Prices([], refuse).recorded(machine) is None
    kept = Prices([], refuse, lambda _: RATES).recorded(machine)
    assert kept == RecordedPrice("8", "USD", "the list", "2026-11-22T12:00:00Z")
    row = OwnPrice("v3", "", Decimal(1), None, "EUR", "/home/ada/tpuctl.toml, line 2")
    assert Prices([row], refuse).recorded(machine) == RecordedPrice("4", "EUR", "tpuctl.toml, line 2")
    assert Prices([], refuse, lambda _: RATES).recorded(node("n1", accelerator="v99-8")) is None


def test_reserved_capacity_is_recorded_as_what_nobody_knows() -> None:
    machine = replace(node("n1", accelerator="v3-8"), spec=NodeSpec(reserved=True))
    record = prices().recorded(machine)
    assert record is not None
    assert record.price == prices().of(machine) == RESERVED
