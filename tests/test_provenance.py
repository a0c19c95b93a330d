"""The digest of results, and how many of them one record lists.

Which words of a submission are seeds.
"""

from __future__ import annotations

import msgspec
import pytest

from tpuctl import runs
from tpuctl.provenance import ResultFile, digest_of, first_that_fit, seeds_of

FILE = ResultFile("outputs/a", 3, "AAAAAA==", generation=1)


def test_the_digest_is_of_names_sizes_and_checksums_in_any_order() -> None:
    other = msgspec.structs.replace(FILE, name="outputs/b")
    assert digest_of([FILE, other]) == digest_of([other, FILE])
    assert digest_of([FILE]) == digest_of([msgspec.structs.replace(FILE, generation=2)])
    for change in ({"name": "outputs/c"}, {"bytes": 4}, {"crc32c": "BBBBBA=="}, {"crc32c": None}):
        assert digest_of([msgspec.structs.replace(FILE, **change)]) != digest_of([FILE])  # type: ignore[arg-type]


def test_a_name_cannot_pass_for_two_files() -> None:
    joined = msgspec.structs.replace(FILE, name='a",3,"AAAAAA=="]\n["b')
    pair = [msgspec.structs.replace(FILE, name=name) for name in "ab"]
    assert digest_of([joined]) != digest_of(pair)


@pytest.mark.parametrize("name", ["a", "重" * 340, "\x01" * 1024])
def test_what_is_listed_fits_into_the_record(name: str) -> None:
    shown = tuple(first_that_fit(msgspec.structs.replace(FILE, name=name) for _ in range(20_000)))
    assert 0 < len(shown) <= 10_000
    assert len(runs.encode(shown)) < 4_300_000
    assert len(shown) == 10_000 or len(runs.encode(shown)) > 2_000_000


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
