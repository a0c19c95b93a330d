"""Random walks of up, kill, up, down with faults: nothing bills that `ls` does not list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes.walks import walk

QUICK, SLOW = range(20), range(20, 1000)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW)])
def test_nothing_is_left_that_ls_does_not_list(home: Path, tmp_path: Path, seed: int) -> None:
    steps = walk(seed, tmp_path)
    assert steps.error == "", steps.moves


def test_a_seed_always_gives_the_same_walk(home: Path, tmp_path: Path) -> None:
    walks = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        walks.append(walk(7, tmp_path / name))
    assert walks[0] == walks[1]
