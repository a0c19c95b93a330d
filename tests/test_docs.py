"""The documents say what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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


DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
DOCUMENTS += sorted(ROOT.glob("docs/*.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_a_document_exists(document: Path) -> None:
    text = document.read_text()
    named = re.findall(r"`((?:tpuctl|jobs|demo|tests|docs|terraform|benchmarks)/[\w./-]*)`", text)
    linked = re.findall(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)", text)
    paths = {ROOT / path for path in named if "FORMAT" not in path} | {
        document.parent / path for path in linked
    }
    assert sorted(path for path in paths if not path.exists()) == []


@pytest.mark.parametrize("document", sorted(ROOT.glob("docs/*.md")), ids=lambda path: path.name)
def test_the_index_names_every_document(document: Path) -> None:
    assert document.name == "README.md" or f"({document.name})" in (ROOT / "docs/README.md").read_text()


def test_contributing_lists_every_target_of_make() -> None:
    rows = re.findall(r"^([a-z-]+):[^#\n]*## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    table = "".join(f"| `make {target}` | {text} |\n" for target, text in rows)
    assert table in (ROOT / "CONTRIBUTING.md").read_text()


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the files of the checkout that people and programs read, with their text."""
    generated = {".git", ".venv", ".demo", ".tensorflow", ".jax", ".beam"}
    generated |= {".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
    suffixes = {".py", ".md", ".toml", ".txt", ".yml", ".tf", ".hcl", ".ipynb", ".sh", ""}
    for top in ROOT.iterdir():
        for path in (top, *top.rglob("*")) if top.name not in generated else ():
            if path.is_file() and path.suffix in suffixes:
                yield path, path.read_text(errors="ignore")


def test_no_file_names_a_machine_path_or_an_index() -> None:
    words = ("/root" + "/", "/home" + "/runner", "file://" + "/opt")
    assert [f"{path}: {word}" for path, text in texts() for word in words if word in text] == []
    options = ("--index-" + "url", "--extra-" + "index")  # which the reader of a project's lists has to know
    read_by_tools = [(path, text) for path, text in texts() if path.suffix not in (".py", ".md")]
    assert [f"{path}: {word}" for path, text in read_by_tools for word in options if word in text] == []


BY_NAME = re.compile(
    r"""(?:\binstall(?:\s+-\S+)*|\buvx|\buv\s+add|\bpipx\s+run)[\s'"]+tpuctl\b(?![-_]|\S*\s+@\s)|(?<![\w-])tpuctl(?:\[[a-z,]+\])?[=~<>]=\S"""
)


def test_nothing_installs_tpuctl_by_a_name_that_somebody_else_can_take() -> None:
    """No package index has it under our name: installs are from a clone, a wheel or a commit."""
    name = "tpuctl"
    wrong = (f"pip install {name}", f"pip install -q\n'{name}[sim]'", f"{name}[parquet]==1", f"uvx {name} ls")
    right = ("pip install '.[sim]'", f'pip install "{name} @ git+https://x/y@c"', f"{name} ls")
    assert [bool(BY_NAME.search(text)) for text in (*wrong, *right)] == [True] * 4 + [False] * 3
    assert [f"{path}: {match[0]}" for path, text in texts() for match in BY_NAME.finditer(text)] == []
