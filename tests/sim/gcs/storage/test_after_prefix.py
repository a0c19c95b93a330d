"""The name at which a listing goes on behind all that begin with a prefix."""

from __future__ import annotations

import pytest

from tpuctl.sim.gcs.storage import store


@pytest.mark.parametrize(
    ("prefix", "following"),
    [
        ("a/", "a0"),
        ("a", "b"),
        ("\ud7ff", "\ue000"),
        ("a\ud7ff", "a\ue000"),
        ("\U0010ffff", None),
        ("ab\U0010ffff", "ac"),
        ("ab\U0010ffff\U0010ffff", "ac"),
        ("\U0010fffe", "\U0010ffff"),
        ("", None),
    ],
)
def test_it_is_the_least_name_above_them(prefix: str, following: str | None) -> None:
    assert store._after(prefix) == following
