"""Which words of a submission are seeds."""

from __future__ import annotations

import pytest

from tpuctl.provenance import seeds_of


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [
        (["--seed", "7"], {"--seed": "7"}),
        (["--epochs", "3", "--seed=7"], {"--seed": "7"}),
        (["--random_seed", "-1", "-seed", "0x1F"], {"--random_seed": "-1", "-seed": "0x1F"}),
        (["--dataSeed=7", "trainer.seed=8", "seed=9"], {"--dataSeed": "7", "trainer.seed": "8", "seed": "9"}),
        (["--seed"], {}),
        (["--seed", "--epochs", "3"], {}),
        (["--seed", "abandon ability able"], {}),  # words of a wallet
        (["seed", "7"], {}),  # a command of the script, and its own argument
        (["--seeds-file", "7", "--seeded", "7"], {}),
        (["--seed", "***"], {}),
    ],
)
def test_whole_numbers_of_options_named_so(arguments: list[str], seeds: dict[str, str]) -> None:
    assert seeds_of(arguments, {}) == seeds


def test_whole_numbers_of_variables_named_so() -> None:
    variables = {
        "PYTHONHASHSEED": "0",
        "MY_SEED": "12",
        "SEED": "twelve",
        "SEED_FILE": "1",
        "WALLET_SEED": "3",
    }
    assert seeds_of([], variables, ["WALLET_SEED"]) == {"MY_SEED": "12", "PYTHONHASHSEED": "0"}
    assert seeds_of([], {"PYTHONHASHSEED": "random"}) == {"PYTHONHASHSEED": "random"}


def test_there_are_never_too_many_for_a_record() -> None:
    assert len(seeds_of([f"--a{number}-seed=1" for number in range(1000)], {})) == 100
