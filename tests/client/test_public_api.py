"""Tests that the public names are those on record, so that a change is seen, and goes into the CHANGELOG."""

from __future__ import annotations

import dataclasses
import difflib
import inspect

import tpuctl
import tpuctl.testing
from tests.client.public_api import RECORD, description

CLASSES = {name: value for name in tpuctl.__all__ if inspect.isclass(value := getattr(tpuctl, name))}


def test_the_public_names_are_those_on_record() -> None:
    recorded, present = RECORD.read_text().splitlines(), description().splitlines()
    changes = [line for line in difflib.unified_diff(recorded, present, lineterm="", n=0) if line[0] in "+-"]
    assert not changes, "\n".join([
        "The public API differs from its record:", *changes[2:],
        "If that is meant, add a line to CHANGELOG.md, and run: python -m tests.client.public_api",
    ])  # fmt: skip


def test_public_classes_and_their_members_are_documented() -> None:
    for name, kind in CLASSES.items():
        assert kind.__doc__, name
        assert not kind.__doc__.startswith(f"{name}("), "the docstring is that of dataclasses"
        for member, value in vars(kind).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{member}"


def test_records_are_frozen() -> None:
    records = [kind for kind in CLASSES.values() if dataclasses.is_dataclass(kind)]
    assert len(records) > 15
    for kind in records:
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
        assert issubclass(kind, tpuctl.Record) or kind.__module__.startswith("tpuctl.display")
