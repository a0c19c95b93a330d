"""The documents say what the code does."""

from __future__ import annotations

import re

from tests.paths import ROOT
from tpuctl.errors import EXIT_CODES

README = (ROOT / "README.md").read_text()


def test_the_table_of_exit_codes_is_complete() -> None:
    table = README.split("## Exit codes")[1].split("## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == set(
        EXIT_CODES.values()
    )


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets


def test_every_path_in_the_readme_exists() -> None:
    paths = set(re.findall(r"`((?:tpuctl|jobs|demo|tests)/[\w./]*)`", README))
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_no_file_names_a_machine_path_or_an_index() -> None:
    words = ("/root" + "/", "/home" + "/runner", "file://" + "/opt", "--index-" + "url", "--extra-" + "index")
    wrong = []
    made = {".git", ".venv", ".demo", ".tensorflow", ".beam"}
    made |= {".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
    for path in (path for top in ROOT.iterdir() if top.name not in made for path in (top, *top.rglob("*"))):
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ""}:
            text = path.read_text(errors="ignore")
            wrong += [f"{path}: {word}" for word in words if word in text]
    assert wrong == []
