"""What the module's variables say of each value in the table of edges: a few runs of the real terraform."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.terraform.validations.edges import PLAIN, rows
from tests.terraform.workbench import Workbench

FOLDER = "edges"
SOURCE = {"source": "./module"}
READ_BY_OTHERS = ("name", "project_id", "region", "subnet_cidr")
"""Variables that the rules of others read: a call with a value at their edge has none of the others."""
RULE = re.compile(r"variables\.tf:(\d+),")
VARIABLE = re.compile(r'^variable "(\w+)"')

ELSEWHERE = ("", "")
"""The key of an error that is about no call, such as a default that its own rule refuses."""

Row = tuple[str, Any, str]
Said = dict[tuple[str, str], str]
"""Name of a call, and of a variable -> the first error about it."""


def problems(bench: Workbench) -> list[str]:
    """Return a sentence for each value that is not judged as the table says."""
    calls = _calls(list(rows()))
    modules = {
        name: PLAIN | SOURCE | {variable: _literal(value) for variable, value, _ in taken}
        for name, taken in calls.items()
    }
    said = _messages(bench, modules)
    elsewhere = [said[ELSEWHERE]] if ELSEWHERE in said else []
    return elsewhere + [
        sentence
        for name, taken in calls.items()
        for variable, value, wanted in taken
        if (sentence := _wrong(variable, value, wanted, said.get((name, variable), "")))
    ]


def _wrong(variable: str, value: Any, wanted: str, message: str) -> str:
    shown = f"{variable} = {json.dumps(value, ensure_ascii=False)}"
    if wanted and not message:
        return f"{shown} is accepted"
    if message and not wanted:
        return f"{shown} is refused: {message}"
    return f"{shown} is refused for another reason: {message}" if wanted not in message else ""


def _calls(every: list[Row]) -> dict[str, list[Row]]:
    """Share the rows among calls of the module: terraform's time grows with the square of their number."""
    read, others = [], []
    for row in every:
        (read if row[0] in READ_BY_OTHERS else others).append(row)
    return {f"call_{index}": taken for index, taken in enumerate([*_dealt(read), *_dealt(others)])}


def _dealt(every: list[Row]) -> list[list[Row]]:
    """Deal rows into calls so that none has two values of a variable."""
    calls: list[list[Row]] = []
    for name in dict.fromkeys(row[0] for row in every):
        for index, row in enumerate(row for row in every if row[0] == name):
            calls += [[]] if index == len(calls) else []
            calls[index].append(row)
    return calls


def _messages(bench: Workbench, modules: dict[str, Any]) -> Said:
    """Call a module of the variables alone with each of these inputs."""
    folder = bench.folder / FOLDER
    Path(folder, "module").mkdir(parents=True)
    try:
        shutil.copy(bench.folder / "variables.tf", folder / "module")
        said = found = _errors(bench, modules)
        while found:  # rules that read other variables wait for a later step, which the first errors prevent
            rest = {name: _without(call, name, said) for name, call in modules.items()}
            rest = {name: call for name, call in rest.items() if call != PLAIN | SOURCE}
            found = _errors(bench, rest) if rest else {}
            if found.keys() <= said.keys():
                break
            said = found | said
        return said
    finally:
        shutil.rmtree(folder)


def _without(call: dict[str, Any], name: str, said: Said) -> dict[str, Any]:
    """Return the inputs of a call that were not refused yet."""
    kept = {variable: value for variable, value in call.items() if (name, variable) not in said}
    return PLAIN | kept


def _errors(bench: Workbench, modules: dict[str, Any]) -> Said:
    (bench.folder / FOLDER / "main.tf.json").write_text(json.dumps({"module": modules}, indent=1))
    installed = bench.run(FOLDER, "init", "-input=false", "-no-color")
    assert installed.code == 0, installed.text
    lines = (bench.folder / FOLDER / "module" / "variables.tf").read_text().splitlines()
    said: Said = {}
    for line in bench.run(FOLDER, "plan", "-json", "-input=false", "-lock=false").out.splitlines():
        diagnostic = json.loads(line).get("diagnostic")
        if diagnostic:
            place = diagnostic.get("snippet", {}).get("context") or ""
            call = place.removeprefix("module.") if place.startswith("module.") else ""
            key = (call, _variable(diagnostic["detail"], lines) if call else "")
            said.setdefault(key, diagnostic["detail"] or diagnostic["summary"])
    return said


def _variable(message: str, lines: list[str]) -> str:
    """Return the variable that a message is about: it names the line of the rule, or of the variable."""
    number = int(RULE.findall(message)[-1])
    return next(_declared(reversed(lines[:number])))


def _declared(lines: Iterable[str]) -> Iterator[str]:
    return (match[1] for line in lines if (match := VARIABLE.match(line)))


def _literal(value: Any) -> Any:
    """Return a value whose text terraform takes as it is: no templates."""
    if isinstance(value, dict):
        return {_literal(name): _literal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_literal(inner) for inner in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
