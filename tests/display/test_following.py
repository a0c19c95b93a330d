"""Tests what is shown of a run that is followed: lines, and the document that a notebook gets."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.following import MOST_LINES, FollowScreen, RunView


class Handle:
    """Takes what a notebook's display would get."""

    def __init__(self) -> None:
        self.documents: list[dict[str, str]] = []
        self.displays = 0

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        self.displays += 1
        self.documents.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.documents.append(bundle)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Stands for a kernel, whose displays real ones show in tests/notebook."""
    handle = Handle()
    shell = SimpleNamespace(kernel=object())
    module = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=handle.display))
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    return handle


def test_elsewhere_than_in_a_notebook_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = FollowScreen(labels=True)
    screen.update(RunView("r1", "running", {"node": "n1"}))
    screen.line(0, "loss 0.5")
    screen.update(RunView("r1", "running", {"node": "n1", "step": 2}))
    screen.line(1, "\x1b[31mloss\x1b[0m 0.25")
    screen.update(RunView("r1", "succeeded", {"exit": 0}))
    assert capsys.readouterr().out == (
        "r1: running, node n1\n[0] loss 0.5\n[1] loss 0.25\nr1: succeeded, exit 0\n"
    )


def test_a_notebook_gets_one_display_with_the_newest_lines(notebook: Handle) -> None:
    screen = FollowScreen(labels=False)
    for number in range(MOST_LINES + 5):
        screen.line(0, f"line {number}")
    for _ in range(2):
        screen.update(RunView("r1", "running", {"step": 7, "loss": "0.5"}))
    screen.update(RunView("r1", "succeeded", hint="run.pull()"))
    assert len(notebook.documents) == 2, "nothing is sent that is shown already"
    assert notebook.displays == 1, "it is updated in place"
    first = notebook.documents[0]
    assert first["text/plain"] == "r1: running, step 7, loss 0.5"
    text = Reader(first["text/html"]).text
    assert text.startswith("r1: ● runningstep7loss0.5... 5 lines before\nline 5\n")
    assert text.endswith(f"line {MOST_LINES + 4}")
    assert "run.pull()" in notebook.documents[1]["text/html"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_values_and_lines_are_text(notebook: Handle, text: str) -> None:
    screen = FollowScreen(labels=True)
    screen.line(0, text)
    screen.update(RunView(text, text, {text: text}, hint=text))
    (document,) = notebook.documents
    check_harmless(document["text/html"])
    assert "\n" not in document["text/plain"]
