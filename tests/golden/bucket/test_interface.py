"""Tests that the help, exit codes, the JSON of errors and the faults of the simulator stay as they are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict

import pytest

from tests.cli.test_help import PAGES
from tests.golden.bucket.answers import Answers, check_text
from tests.running_simulator import CommandResult
from tpuctl import errors
from tpuctl.faults import KINDS

pytestmark = pytest.mark.daily

Tpuctl = Callable[..., CommandResult]

REFUSED = """\
up v3-7 --yes
up v3-8 --zone europe-west4-b --yes
up v3-8 --name X --yes
up v3-8
down nothing --yes
describe nothing
logs nothing
logs
runs --state gone
runs --since soon
data describe nothing
data describe nothing/1.0.0
data upload x nothing
submit nothing.py
submit job.py
extend nothing 1h
cancel nothing --yes
pull nothing
wait nothing
exec nothing -- true
cp nothing nothing:there
price v9-8
sim fault add stockout --count -1
nothing
ls --nothing
up v3-8 --bucket B --yes
"""
"""Commands that end with an error on an empty simulator."""


@pytest.mark.usefixtures("home")
def test_the_help_of_each_command_is_the_one_on_record(
    tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    pages = {" ".join(["tpuctl", *path]): tpuctl(*path, "--help").out for path in PAGES}
    check_text("help.txt", "".join(f"=== {name} --help\n{text}\n" for name, text in pages.items()))


def test_errors_have_the_exit_codes_and_the_json_on_record(tpuctl: Tpuctl, simulator: object) -> None:
    answers = Answers("errors.json")
    public = [getattr(errors, name) for name in errors.__all__]
    answers.check("classes", {each.__name__: [each.kind, each("").exit_code] for each in public})
    answers.check("kinds", errors.EXIT_CODES)
    questions = REFUSED.splitlines()
    for question in questions:
        result = tpuctl(*question.split(), "--json") if " -- " not in question else tpuctl(*question.split())
        answers.check(
            question, {"exit_code": result.code, "json": json.loads(result.out) if result.out else None}
        )
    answers.check_questions(["classes", "kinds", *questions])


def test_each_fault_has_the_fields_on_record(tpuctl: Tpuctl, simulator: object) -> None:
    answers = Answers("faults.json")
    for kind in KINDS.values():
        example = shlex.split(kind.example)
        added = tpuctl("sim", "fault", "add", kind.name, *example, "--after", "24h", "--json")
        assert added.code == 0, added.err
        answers.check(kind.name, {"example": kind.example, "added": added.json, "kind": asdict(kind)})
    answers.check_questions(list(KINDS))
