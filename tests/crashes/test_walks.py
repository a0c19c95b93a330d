"""Random walks of up, kill, up, down with faults: nothing bills that `ls` does not list."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crashes.walks import walk


def walk_all(folder: Path, seeds: range) -> None:
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        steps = walk(seed, place)
        assert steps.error == "", (seed, steps.moves)


def test_nothing_is_left_that_ls_does_not_list(home: Path, tmp_path: Path) -> None:
    walk_all(tmp_path, range(10))


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize("begin", range(10, 1000 if "TPUCTL_EVERY" in os.environ else 208, 66))
def test_nothing_is_left_after_hundreds_of_walks(home: Path, tmp_path: Path, begin: int) -> None:
    walk_all(tmp_path, range(begin, begin + 66))


def test_a_seed_always_gives_the_same_walk(home: Path, tmp_path: Path) -> None:
    walks = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        walks.append(walk(7, tmp_path / name))
    assert walks[0] == walks[1]
