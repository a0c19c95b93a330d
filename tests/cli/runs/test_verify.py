"""What `verify` shows of differences: the first fifty, those that matter, and the exit code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cli.runs import record as module
from tpuctl.flows.runs.record.verification import (
    BUCKET,
    CHANGED,
    FOLDER,
    MISSING,
    Check,
    Difference,
    Verification,
)

Command = Callable[..., CommandResult]
CHECKS = (Check("results", FOLDER, "3 files"), Check("objects", "", "--offline"))


@pytest.fixture
def verify(tpuctl: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """The command where the flow answers with so many differences: real ones are tested beside the flow."""

    def call(*options: str, changed: int = 0, missing: int = 0, outcome: str = "failed") -> CommandResult:
        differences = (
            *(
                Difference(f"outputs/{number}", CHANGED, "has other bytes", FOLDER)
                for number in range(changed)
            ),
            *(Difference(f"gone/{number}", MISSING, "is not here", BUCKET) for number in range(missing)),
        )
        result = Verification("r1", outcome, 3, CHECKS, differences)
        monkeypatch.setattr(module, "check_folder", lambda *arguments: result)
        return tpuctl("verify", "copy", "--offline", *options)

    return call


@pytest.mark.parametrize(
    ("changed", "shown", "more"), [(1, 1, ""), (50, 50, ""), (51, 50, "1"), (60, 50, "10")]
)
def test_fifty_differences_are_shown_and_others_counted(
    verify: Callable[..., CommandResult], changed: int, shown: int, more: str
) -> None:
    result = verify(changed=changed)
    assert result.code == 4
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[0] == ["CHECK", "BY", "DETAIL"]
    assert rows[1:3] == [["results", "folder", "3", "files"], ["objects", "not", "checked", "--offline"]]
    assert rows[3] == ["DIFFERENCE", "FILE", "DETAIL"]
    assert rows[4] == ["changed", "outputs/0", "has", "other", "bytes"]
    assert len(rows[4:]) == shown
    said = f"{more} more differences: 'tpuctl verify copy --json' lists all of them."
    assert (said in result.err.splitlines()) == bool(more)
    count = "1 difference." if changed == 1 else f"{changed} differences."
    assert f"says: {count}" in result.err


def test_a_part_may_lack_files(verify: Callable[..., CommandResult]) -> None:
    result = verify("--partial", missing=3)
    assert (result.code, "DIFFERENCE" in result.out) == (0, False)
    assert verify(missing=3).code == 4
    both = verify("--partial", "--json", missing=3, changed=2)
    assert both.code == 4
    assert [difference["name"] for difference in both.json["differences"]] == ["outputs/0", "outputs/1"]
    assert both.json["same"] is False


def test_the_json_of_a_folder_that_is_the_run(verify: Callable[..., CommandResult]) -> None:
    content = verify("--json", outcome="").json
    assert content == {
        "schema": 1, "run": "r1", "folder": "copy", "outcome": None, "files": 3, "same": True,
        "checks": [
            {"subject": "results", "by": "folder", "detail": "3 files"},
            {"subject": "objects", "by": "", "detail": "--offline"},
        ],
        "differences": [],
    }  # fmt: skip
    assert verify("--json").json["outcome"] == "failed"
