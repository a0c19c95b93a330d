"""docs/simulator.md lists all methods, with the evidence of the tests."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.contract.document import FILE, absent, rendered
from tests.contract.evidence import Evidence, disagreements, load, merged
from tests.contract.sections import JSON_METHODS, sections
from tests.paths import ROOT

SDK = "lib/googlecloudsdk/generated_clients/apis/storage/v1/storage_v1_client.py"


def functions() -> dict[str, ast.FunctionDef]:
    """Every test of the suite by its id."""
    return {
        f"{path.relative_to(ROOT)}::{name}": function
        for path in (ROOT / "tests").rglob("test_*.py")
        for name, function in _tests_in(ast.parse(path.read_text()))
    }


def _tests_in(body: ast.Module | ast.ClassDef, before: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node, f"{before}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{before}{node.name}", node


def test_the_document_is_made_of_the_results() -> None:
    assert FILE.read_text() == rendered(load()), "run: make contract"


def test_every_result_is_of_a_method_and_a_client_of_the_table() -> None:
    cells = {
        (method, client) for section in sections() for method in section.methods for client in section.clients
    }
    assert not load().keys() - cells


def test_every_result_names_tests_that_there_are() -> None:
    named = {test for evidence in load().values() for test in evidence.tests}
    assert not named - functions().keys()


def test_nothing_is_both_there_and_not_there() -> None:
    assert not {method for method, _ in load()} & absent()


def test_every_marker_is_in_the_results() -> None:
    results = load()
    for test, function in functions().items():
        for decorator in function.decorator_list:
            if not (
                isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.contract"
            ):
                continue
            options = {word.arg: ast.literal_eval(word.value) for word in decorator.keywords}
            for method in map(ast.literal_eval, decorator.args):
                evidence = results.get((method, options["client"]))
                assert evidence, f"{test} declares {method} with {options['client']}: run make contract"
                assert evidence.differs == options.get("differs", ""), test


def test_the_methods_are_those_that_gclouds_own_client_knows() -> None:
    gcloud = shutil.which("gcloud")
    path = Path(gcloud).resolve().parents[1] / SDK if gcloud else None
    if path is None or not path.exists() or not version_of(path).startswith("528."):
        assert len(JSON_METHODS) == 81, "as counted where gcloud 528 is installed"
        return
    text = path.read_text()
    assert not [method for method, *_ in JSON_METHODS if f"method_id='{method}'" not in text]
    assert text.count("method_id='storage.") == len(JSON_METHODS)


def version_of(gcloud: Path) -> str:
    """Return the version of the Google Cloud SDK in whose folder this is, '' where it does not say."""
    file = next((folder / "VERSION" for folder in gcloud.parents if (folder / "VERSION").is_file()), None)
    return file.read_text().strip() if file else ""


def test_a_run_that_shows_something_else_is_told_so() -> None:
    recorded = {("m", "c"): Evidence(["t1", "t2"])}
    assert disagreements(recorded, {("m", "c"): Evidence(["t2"])}, {"t1", "t2"}) == []
    assert disagreements(recorded, {}, {"t1"}) == [], "the other may still show it"
    assert len(disagreements(recorded, {}, {"t1", "t2"})) == 1
    assert len(disagreements(recorded, {("m", "other"): Evidence(["t1"])}, {"t1"})) == 1
    assert len(disagreements(recorded, {("m", "c"): Evidence(["t1"], "differs")}, {"t1"})) == 1
    assert merged(recorded, {}, {"t1", "t2"}) == {}
    assert merged(recorded, {("m", "c"): Evidence(["t3"])}, {"t1", "t3"})["m", "c"].tests == ["t2", "t3"]
