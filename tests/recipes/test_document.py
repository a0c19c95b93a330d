"""docs/python.md shows the recipes as they are tested."""

from __future__ import annotations

import re

import tpuctl
from tests.recipes.document import DOCUMENT, RECIPES
from tests.testing.document import PLACE, rendered


def test_it_shows_the_recipes_as_they_are() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text, RECIPES) == text, "run: python -m tests.recipes.document"


def test_it_names_every_recipe() -> None:
    text = DOCUMENT.read_text()
    named = {match[1] for match in PLACE.finditer(text)} | set(re.findall(r"recipes/([\w.]+)\)", text))
    named |= {"train.py"} if "`train.py` stands for" in text else set()
    assert named == {path.name for path in RECIPES.iterdir() if path.is_file()}


def test_the_main_job_takes_ten_lines() -> None:
    lines = (RECIPES / "main_job.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 10


def test_every_call_of_the_table_is_one_of_the_api() -> None:
    table = DOCUMENT.read_text().split("## The calls")[1].split("\n## ")[0]
    owners = {"client": tpuctl.Client, "node": tpuctl.Node, "run": tpuctl.Run}
    calls = re.findall(r"\b(client|node|run)\.(\w+)", table)
    assert len(calls) > 20
    assert [call for call in calls if not hasattr(owners[call[0]], call[1])] == []


def test_the_workflow_runs_the_recipe() -> None:
    assert (RECIPES / "nightly.yml").read_text().endswith("      - run: python nightly.py data result\n")
