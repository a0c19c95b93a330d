"""The reference of a dataset: typed, shown, and as a folder."""

from __future__ import annotations

import msgspec
import pytest

from tpuctl.datasets import DatasetRef, PinnedDataset


@pytest.mark.parametrize(
    ("text", "ref", "folder"),
    [
        ("pets/1.0.0", DatasetRef("pets", "1.0.0"), "datasets/pets/1.0.0/"),
        ("pets", DatasetRef("pets", ""), "datasets/pets/"),
    ],
)
def test_it_is_shown_as_it_is_typed(text: str, ref: DatasetRef, folder: str) -> None:
    assert DatasetRef.parse(text) == ref
    assert str(ref) == text
    assert ref.folder == folder
    assert ref.uri("b") == f"gs://b/{folder}"


def test_a_slash_at_the_end_names_no_version() -> None:
    assert DatasetRef.parse("pets/") == DatasetRef("pets", "")


def test_pinned_it_has_the_same_folder_and_is_stored_flat() -> None:
    pinned = PinnedDataset("pets", "1.0.0", "ab")
    assert (str(pinned), pinned.folder) == ("pets/1.0.0", "datasets/pets/1.0.0/")
    assert msgspec.json.encode(pinned) == b'{"name":"pets","version":"1.0.0","manifest_sha256":"ab"}'
