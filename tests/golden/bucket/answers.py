"""Compares answers with those on record; with TPUCTL_GOLDEN_WRITE=1 it puts them on record instead."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "answers"
WRITES = os.environ.get("TPUCTL_GOLDEN_WRITE") == "1"
MOST_LINES = 60
WIDTH = 140
MEANT = """
If this is meant: say so in CHANGELOG.md, run TPUCTL_GOLDEN_WRITE=1 python -m pytest tests/golden/bucket,
and look at the difference in git.
"""


class Answers:
    """The answers in one JSON file, by the question."""

    def __init__(self, file: str) -> None:
        self._path = FOLDER / file
        self._recorded: dict[str, object] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def __getitem__(self, question: str) -> Any:
        """Return the answer on record."""
        return self._recorded[question]

    def check(self, question: str, answer: object) -> None:
        """Fail if an answer is not the one on record."""
        answer = json.loads(json.dumps(answer))
        if WRITES:
            self._recorded[question] = answer
        else:
            assert question in self._recorded, f"There is no answer on record to: {question}\n{MEANT}"
            same(self._recorded[question], answer, question)

    def check_questions(self, questions: list[str]) -> None:
        """Fail if there are answers to questions that nobody asks any more; call this last."""
        if WRITES:
            kept = {question: self._recorded[question] for question in questions}
            self._path.write_text(as_text(kept) + "\n")
        other = self._recorded.keys() - set(questions)
        assert WRITES or not other, f"{self._path.name} answers what nobody asks: {other}\n{MEANT}"


def check_text(file: str, text: str) -> None:
    """Fail if a text is not the one on record."""
    if WRITES:
        (FOLDER / file).write_text(text)
    same((FOLDER / file).read_text(), text, file)


def same(recorded: object, present: object, title: str) -> None:
    """Fail with the lines that differ."""
    if recorded == present:
        return
    texts = [value if isinstance(value, str) else as_text(value) for value in (recorded, present)]
    lines = list(
        difflib.unified_diff(*(text.splitlines() for text in texts), "on record", "now", lineterm="", n=2)
    )
    more = [f"... and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    raise AssertionError("\n".join([f"{title}:", *lines[:MOST_LINES], *more, MEANT]))


def as_text(value: object, indent: str = "") -> str:
    """Return JSON that people can read and compare: what fits into a line is one, keys are in order."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, (dict, list)):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {as_text(value[key], deeper)}" for key in sorted(value)
        ]
    else:
        parts = [as_text(each, deeper) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + f"\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{end}"
