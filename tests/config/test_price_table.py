"""The table [prices] of tpuctl.toml: its grammar, and what its errors name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.catalogue.prices import OwnPrice
from tpuctl.config import load
from tpuctl.config.files import user_file
from tpuctl.errors import ConfigError


def write(text: str) -> str:
    Path("tpuctl.toml").write_text(text)
    return str(Path("tpuctl.toml").resolve())


def test_rows_are_prices_of_slices_and_chips(home: Path) -> None:
    path = write(
        'zone = "us-east1-d"\n'
        "[prices]\n"
        'currency = "EUR"\n'
        "v3-8 = 7.5\n"
        "v5e = { on_demand = 1.1, spot = 0 }\n"
        '"v5litepod-8@europe-west4-b" = { spot = 2 }\n'
    )
    config = load({})
    assert config.get("zone") == "us-east1-d"
    assert config.prices == (
        OwnPrice("v3-8", "", Decimal("7.5"), None, "EUR", f"{path}, line 4"),
        OwnPrice("v5e", "", Decimal("1.1"), Decimal(0), "EUR", f"{path}, line 5"),
        OwnPrice("v5litepod-8", "europe-west4-b", None, Decimal(2), "EUR", f"{path}, line 6"),
    )


def test_the_projects_rows_come_before_the_users_own(home: Path) -> None:
    write("[prices]\nv3-8 = 1\n")
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[prices]\nv3-8 = 2\nv2-8 = 3\n")
    assert [(row.name, row.on_demand) for row in load({}).prices] == [("v3-8", 1), ("v3-8", 2), ("v2-8", 3)]


def test_without_the_table_there_are_no_rows(home: Path) -> None:
    write("")
    assert load({}).prices == ()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("prices = 1", "line 1: 'prices' has to be a table", "[prices]"),
        ("[prices]\nv3-8 = '1'", "line 2: the price of v3-8 has to be a number", "v3-8 = 1.5"),
        ("[prices]\nv3-8 = -1", "line 2: the price of v3-8 has to be a number, 0 or more", ""),
        ("[prices]\nv3-8 = true", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = nan", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = inf", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = 1e300", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = { hourly = 1 }", "line 2: the price of v3-8 has no term 'hourly'", "on_demand"),
        ("[prices]\nv3-8 = {}", "line 2: the price of v3-8 has no term", "on_demand"),
        ("[prices]\n'v3-8@moon' = 1", "line 2: 'moon' is not a region or zone", "europe-west4"),
        ("[prices]\n'v3-8@' = 1", "line 2: '' is not a region or zone", ""),
        ("[prices]\nv3-9 = 1", "line 2: there is no accelerator type or generation 'v3-9'", "v3-8"),
        ("[prices]\nv7e = 1", "line 2: there is no accelerator type or generation 'v7e'", "Did you mean"),
        ("[prices]\ncurrency = 'eur'", "line 2: the currency of [prices] has to be a code", "EUR"),
        ("[prices]\ncurrency = 1", "line 2: the currency of [prices] has to be a code", "EUR"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(home: Path, text: str, message: str, hint: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as refused:
        load({})
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_up_shows_a_price_of_the_file_and_says_that_it_is_from_there(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult]
) -> None:
    path = write("[prices]\ncurrency = 'CHF'\nv3 = { on_demand = 2, spot = 0.5 }\n")
    assert f"8.00 CHF ({path}, line 3)" in tpuctl("up", "v3-8").err
    assert f"2.00 CHF ({path}, line 3)" in tpuctl("up", "v3-8", "--spot").err
    assert simulator.events.find(service="billing") == []
