"""Tests what is shown of a run that is still running, and of errors.

Tests what is shown of a run's metrics.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from math import inf, nan
from types import SimpleNamespace

import pytest

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.following import (
    NEWEST_LINES,
    FollowScreen,
    RunView,
    concise,
    is_notebook,
    log_text,
    running_shell,
)
from tpuctl.display.markup import HEIGHT, MOST_POINTS, WIDTH, Curve, Metrics, Point
from tpuctl.errors import JobFailedError


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
    for number in range(NEWEST_LINES + 5):
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
    assert text.endswith(f"line {NEWEST_LINES + 4}")
    assert "run.pull()" in notebook.documents[1]["text/html"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_values_and_lines_are_text(notebook: Handle, text: str) -> None:
    screen = FollowScreen(labels=True)
    screen.line(0, text)
    screen.update(RunView(text, text, {text: text}, hint=text))
    (document,) = notebook.documents
    check_harmless(document["text/html"])
    assert "\n" not in document["text/plain"]


def document(notebook: Handle, screen: FollowScreen, view: RunView | None = None) -> str:
    """The text of what a notebook shows after an update."""
    screen.update(view or RunView("r1", "running"))
    return Reader(notebook.documents[-1]["text/html"]).text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "r1: running"),
        ({"node": "n1", "step": 0, "loss": "", "exit": None}, "r1: running, node n1, step 0"),
        ({"node": "a\nb"}, r"r1: running, node a\nb"),
    ],
)
def test_a_run_in_one_line_has_what_is_known(content: dict[str, object], sentence: str) -> None:
    assert RunView("r1", "running", content).sentence == sentence


def test_the_caller_may_choose_the_display(notebook: Handle, capsys: pytest.CaptureFixture[str]) -> None:
    FollowScreen(labels=True, live=False).update(RunView("r1", "running"))
    assert not notebook.documents
    assert capsys.readouterr().out == "r1: running\n"
    FollowScreen(labels=True, live=True).update(RunView("r1", "running"))
    assert len(notebook.documents) == 1
    assert capsys.readouterr().out == ""


def test_lines_without_labels_are_the_bare_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = FollowScreen(labels=False, live=False)
    screen.line(3, "loss 0.5")
    screen.unfinished([(3, "50%")])
    assert capsys.readouterr().out == "loss 0.5\n"


def test_a_state_that_comes_again_is_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    screen = FollowScreen(labels=False, live=False)
    for state in ("running", "running", "preempted", "running", "running"):
        screen.update(RunView("r1", state))
    assert capsys.readouterr().out == "r1: running\nr1: preempted\nr1: running\n"


def test_lines_that_have_no_end_yet_are_shown_last_and_replaced(notebook: Handle) -> None:
    screen = FollowScreen(labels=True)
    screen.line(0, "loss 0.5")
    screen.unfinished(iter([(0, "50%"), (1, "\x1b[31m60%\x1b[0m")]))
    assert document(notebook, screen).endswith("running[0] loss 0.5\n[0] 50%\n[1] 60%")
    screen.unfinished([(1, "70%")])
    assert document(notebook, screen).endswith("running[0] loss 0.5\n[1] 70%")
    screen.unfinished([])
    assert document(notebook, screen).endswith("running[0] loss 0.5")


def test_lines_before_the_newest_are_counted(notebook: Handle) -> None:
    screen = FollowScreen(labels=False)
    for number in range(NEWEST_LINES):
        screen.line(0, f"line {number}")
    assert "before" not in document(notebook, screen)
    screen.line(0, "last but one")
    screen.line(0, "last")
    shown = document(notebook, screen).splitlines()
    assert shown[0].endswith("... 2 lines before")
    assert shown[1:] == [*(f"line {number}" for number in range(2, NEWEST_LINES)), "last but one", "last"]


def test_a_run_that_has_printed_nothing_has_no_block_of_lines(notebook: Handle) -> None:
    screen = FollowScreen(labels=False)
    assert document(notebook, screen, RunView("r1", "queued", hint="wait")) == "r1: ● queuednextwait"
    assert "<pre" not in notebook.documents[0]["text/html"]
    screen.unfinished([(0, "50%")])
    screen.update(RunView("r1", "running"))
    assert "<pre" in notebook.documents[1]["text/html"]


def test_what_is_next_stands_below_what_is_known(notebook: Handle) -> None:
    view = RunView("r1", "running", {"step": 7}, "run.pull()")
    assert document(notebook, FollowScreen(labels=False), view) == "r1: ● runningstep7nextrun.pull()"
    assert "next" not in document(notebook, FollowScreen(labels=False), RunView("r1", "running", {"step": 7}))


def test_the_line_of_a_log_has_no_colours() -> None:
    assert log_text(2, "\x1b[31mred\x1b[0m\ta", labels=True) == "[2] red\ta"
    assert log_text(2, "\x1b[31mred\x1b[0m", labels=False) == "red"


def test_what_is_written_arrives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        arrived = ""

        def flush(self) -> None:
            self.arrived = self.getvalue()

    stream = Stream()
    monkeypatch.setattr(sys, "stdout", stream)
    screen = FollowScreen(labels=False, live=False)
    screen.line(0, "loss 0.5")
    assert stream.arrived == "loss 0.5\n"
    screen.update(RunView("r1", "running"))
    assert stream.arrived == "loss 0.5\nr1: running\n"


WITHOUT_IPYTHON = """
import sys
sys.modules["IPython"] = None  # the documented way to make an import fail
import tpuctl
from tpuctl.display.markup import Curve, Metrics, Point
from tpuctl.display.following import FollowScreen, RunView
listing = tpuctl.Listing([1, 2], "numbers", {"number": lambda number: number})
metrics = Metrics("r1", {"loss": Curve("loss", "", (Point(1, 0.5, 0.0), Point(2, 0.5, 0.0)))}, ())
assert "<table" in listing._repr_html_() and "<svg" in metrics._repr_html_()
print(listing, metrics)
screen = FollowScreen(labels=False)
screen.line(0, "a line")
screen.update(RunView("r1", "running"))
print(sorted(name for name in sys.modules if name.split(".")[0] in ("IPython", "numpy", "google", "grpc")))
"""


def test_without_ipython_records_are_shown_and_runs_followed() -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_IPYTHON]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "NUMBER", "1", "2 <metrics of r1>",
        "  loss: 0.5 at step 1, 0.5 at step 2, lowest 0.5 at step 1, highest 0.5 at step 1",
        "a line", "r1: running", "['IPython']",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_a_kernel_is_a_notebook_and_a_terminal_is_none(
    monkeypatch: pytest.MonkeyPatch, shell: object, expected: bool
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert running_shell() is shell
    assert is_notebook() is expected


def test_an_ipython_that_was_not_imported_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert running_shell() is None
    assert is_notebook() is False


def test_it_is_the_same_error_with_a_short_form_for_ipython() -> None:
    error = JobFailedError("Run 'r1' failed: exit code 3.", hint="See the end of its log: tpuctl logs r1")
    assert concise(error) is error
    with pytest.raises(JobFailedError, match="exit code 3"):
        raise error
    text = "\n".join(error._render_traceback_())  # type: ignore[attr-defined]
    assert text == (
        "\x1b[1;31mJobFailedError:\x1b[0m Run 'r1' failed: exit code 3.\n"
        "\x1b[36mHint:\x1b[0m See the end of its log: tpuctl logs r1"
    )


def test_what_steers_a_terminal_is_escaped() -> None:
    error = concise(JobFailedError("it printed \x1b]0;title\x07 and \u202e"))
    (text,) = error._render_traceback_()  # type: ignore[attr-defined]
    assert text.endswith(r"it printed \x1b]0;title\x07 and \u202e")


def curve(*points: Point, unit: str = "") -> Curve:
    return Curve("", unit, points)


def html(run: str, curves: dict[str, Curve], problems: tuple[str, ...] = ()) -> str:
    return Metrics(run, curves, problems)._repr_html_()


def text(run: str, curves: dict[str, Curve], problems: tuple[str, ...] = ()) -> str:
    return repr(Metrics(run, curves, problems))


CURVES = {
    "loss": curve(Point(1, 2.0, 0.0), Point(2, 1.0, 0.0)),
    "accuracy": curve(Point(2, 0.5, 0.0)),
    "val_loss": curve(Point(2, 1.5, 0.0)),
    "step_time": curve(Point(2, 12.5, 0.0), unit="ms"),
}


def lines(*values: float) -> list[list[float]]:
    """Return the points of each line that is drawn for a curve of these values, one a step."""
    drawn_curve = curve(*(Point(step, value, 0.0) for step, value in enumerate(values)))
    document = html("r1", {"loss": drawn_curve})
    drawn = re.findall(r'points="([^"]*)"', document)
    return [[float(number) for number in re.split("[ ,]", text)] for text in drawn]


def test_each_metric_has_a_curve_and_words() -> None:
    document = html("r1", CURVES)
    assert document.count("<svg") == 1, "one value is no curve"
    said = Reader(document).text
    assert "loss2 at step 1, 1 at step 2" in said
    assert "step_time (ms)12.5 at step 2" in said


def test_a_curve_fills_its_frame_from_left_to_right() -> None:
    assert lines(2.0, 4.0, 3.0) == [[0, HEIGHT, WIDTH / 2, 0, WIDTH, HEIGHT / 2]]
    assert lines(5.0, 5.0) == [[0, 0, WIDTH, 0]]


def test_a_long_curve_is_drawn_with_few_points_and_its_end() -> None:
    (line,) = lines(*(step / 7 for step in range(10_001)))
    assert len(line) <= 2 * (MOST_POINTS + 1)
    assert line[-2:] == [WIDTH, 0]


@pytest.mark.parametrize("values", [(), (nan,), (1.0, inf), (-1e308, 1e308)])
def test_what_cannot_be_drawn_is_said_in_words(values: tuple[float, ...]) -> None:
    assert lines(*values) == []


def test_values_that_are_no_numbers_are_counted() -> None:
    mixed = curve(*(Point(step, value, 0.0) for step, value in enumerate((1.0, nan, 2.0))))
    assert "2 at step 2; 1 of 3 values are no numbers" in text("r1", {"loss": mixed})
    assert "no value; 1 of 1 values are" in text("r1", {"loss": curve(Point(1, nan, 0.0))})
    assert lines(1.0, nan, 2.0) == [[0, HEIGHT, WIDTH, 0]]


def test_text_says_each_metric_with_its_unit() -> None:
    assert text("r1", CURVES, ("a file is damaged",)).splitlines() == [
        "<metrics of r1>",
        "  loss: 2 at step 1, 1 at step 2, lowest 1 at step 2, highest 2 at step 1",
        "  accuracy: 0.5 at step 2",
        "  val_loss: 1.5 at step 2",
        "  step_time: 12.5 at step 2 (ms)",
        "  not read: a file is damaged",
    ]


def test_a_run_without_metrics_says_so() -> None:
    assert "no metrics yet" in html("r1", {})
    assert "none yet" in text("r1", {})


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_and_reasons_are_text(hostile: str) -> None:
    check_harmless(html(hostile, {hostile: CURVES["loss"]}, (hostile,)))
    assert text(hostile, {hostile: CURVES["loss"]}, (hostile,)).count("\n") == 2


def test_reasons_of_what_is_missing_stand_below_the_charts() -> None:
    said = Reader(html("r1", CURVES, ("one", "two"))).text
    assert said.endswith("not read: onenot read: two")
    assert "not read" not in Reader(html("r1", CURVES)).text


def test_a_run_without_metrics_says_why_it_may_have_none() -> None:
    assert Reader(html("r1", {}, ("a file is damaged",))).text == (
        "r1: no metrics yetnot read: a file is damaged"
    )
    assert text("r1", {}, ("a file is damaged",)).splitlines() == [
        "<metrics of r1>",
        "  none yet",
        "  not read: a file is damaged",
    ]
