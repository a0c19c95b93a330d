"""Files are found by their paths, also where two paths have one hash."""

from __future__ import annotations

import pytest

from tpuctl.data.files import listing
from tpuctl.data.files.listing import PathIndex

KEYS = ["bb", "a", "cc", "bb", "dd", "eee", "bb", "cc"]


@pytest.fixture(params=[hash, len, lambda key: -len(key), lambda key: 0])
def _hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash by the length of a key, or not at all, so that different keys meet."""
    monkeypatch.setattr(listing, "hash", request.param, raising=False)


@pytest.mark.usefixtures("_hashes")
class TestIndex:
    @pytest.mark.parametrize(
        ("key", "numbers"),
        [("bb", [0, 3, 6]), ("a", [1]), ("cc", [2, 7]), ("dd", [4]), ("eee", [5]), ("zz", []), ("ffff", [])],
    )
    def test_every_file_of_a_path_is_found_in_order(self, key: str, numbers: list[int]) -> None:
        index = PathIndex(len(KEYS), KEYS.__getitem__)
        assert list(index.find(key)) == numbers
        assert index.first(key) == next(iter(numbers), None)

    def test_files_whose_path_an_earlier_one_has_are_repeats(self) -> None:
        assert sorted(PathIndex(len(KEYS), KEYS.__getitem__).repeats()) == [3, 6, 7]

    @pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"], ["aa", "bb", "cc"]])
    def test_different_paths_have_no_repeats(self, keys: list[str]) -> None:
        index = PathIndex(len(keys), keys.__getitem__)
        assert list(index.repeats()) == []
        assert index.first("none") is None
