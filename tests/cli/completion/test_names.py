"""Names for the completion belong to what they were listed in, and end as bash splits words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.cli.completion import answer
from tpuctl.cli.completion.answer import Bash, ListedNames
from tpuctl.config import load


def listed(**flags: str) -> ListedNames:
    return ListedNames(load({"target": "gcp", "project": "first-project", "bucket": "first-bucket", **flags}))


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """Nothing was listed."""


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        ("nodes", {"bucket": "other-bucket"}, {"project": "other-project"}),
        ("runs", {"project": "other-project"}, {"bucket": "other-bucket"}),
        ("datasets", {"project": "other-project"}, {"bucket": "other-bucket"}),
    ],
)
def test_names_are_those_of_a_project_or_a_bucket(
    kind: str, same: dict[str, str], other: dict[str, str]
) -> None:
    listed().replace(kind, ["n1", "n2"])
    assert listed(**same).names(kind) == ["n1", "n2"]
    assert listed(**other).names(kind) == []
    assert [listed().names(each) for each in ("nodes", "runs", "datasets") if each != kind] == [[], []]


def test_datasets_are_those_of_their_own_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUCTL_DATA_BUCKET", "data-bucket")
    listed().add("datasets", "digits")
    listed().add("runs", "r1")
    assert listed(bucket="other-bucket").names("datasets") == ["digits"]
    assert listed(bucket="other-bucket").names("runs") == []
    monkeypatch.delenv("TPUCTL_DATA_BUCKET")
    assert listed().names("datasets") == []
    assert listed().names("runs") == ["r1"]


def test_a_name_is_added_and_removed() -> None:
    names = listed()
    names.replace("nodes", ["n1"])
    names.add("nodes", "n2")
    names.remove("nodes", ["n1"])
    assert listed().names("nodes") == ["n2"]


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [
        ("tpuctl ls", 1, ([], "ls")),
        ("tpuctl ls --zone = eu", 4, (["ls", "--zone"], "eu")),
        ("tpuctl ls --zone =", 3, (["ls", "--zone"], "")),
        ("tpuctl ls --zone eu", 3, (["ls", "--zone"], "eu")),
    ],
)
def test_bash_splits_a_value_after_an_equals_sign(
    monkeypatch: pytest.MonkeyPatch, words: str, place: int, expected: tuple[list[str], str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    completion = Bash(None, {}, "tpuctl", "_TPUCTL_COMPLETE")  # type: ignore[arg-type]  # words need no command
    assert completion.get_completion_args() == expected


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("", "n1"),
        ("--project first-project", "n1"),
        ("--project other-project --project first-project", "n1"),
        ("--project other-project", ""),
    ],
)
def test_the_answer_has_the_names_of_the_project_on_the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, names: str
) -> None:
    listed().replace("nodes", ["n1"])
    monkeypatch.setenv("TPUCTL_TARGET", "gcp")
    monkeypatch.setenv("TPUCTL_PROJECT", "first-project")
    monkeypatch.setenv("_TPUCTL_COMPLETE", "bash_complete")
    line = f"tpuctl down {flags} ".replace("  ", " ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    assert answer.answer() == 0
    assert capsys.readouterr().out == (f"plain,{names}\n" if names else "\n")


@pytest.mark.parametrize("instruction", [None, "bash", "nonsense_complete"])
def test_what_cannot_be_answered_is_an_exit_code_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], instruction: str | None
) -> None:
    monkeypatch.delenv("_TPUCTL_COMPLETE", raising=False)
    if instruction:
        monkeypatch.setenv("_TPUCTL_COMPLETE", instruction)
    assert answer.answer() == 1
    assert capsys.readouterr() == ("", "")
