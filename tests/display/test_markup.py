"""Tests what a notebook shows of values and records: HTML that is harmless."""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tpuctl.display.markup import (
    DOTS,
    MOST_CHARACTERS,
    MOST_LINES,
    MOST_ROWS,
    Coloured,
    Markup,
    cell,
    coloured_state,
    element,
    escaped,
    facts,
    joined,
    lines,
    record_html,
    table,
)
from tpuctl.nodes import NodeState, QueueState

HOSTILE = [
    "<script>alert(1)</script>", "</td></table><img src=x onerror=alert(1)>", "\"><svg/onload=alert(1)>",
    "' onmouseover='alert(1)", "&lt;script&gt;", "n1\u202exe.txt", "\x1b[31mred", "a\u2066b\u2069", "\ud800",
    "<!-- ", "]]>", "javascript:alert(1)", "line\nbreak\x00",
]  # fmt: skip


class Reader(HTMLParser):
    """Collects the elements and the text of a document, as a browser reads it."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def check_harmless(document: str) -> Reader:
    """Fail for a document with an element or an attribute that could do something."""
    reader = Reader(document)
    allowed = {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "pre", "img"}
    allowed |= {"svg", "polyline"}
    assert reader.names <= allowed
    assert not [name for name in reader.attributes if name.startswith("on") or name in ("href", "srcdoc")]
    assert not set("\u202e\u2066\u2069\x1b\x00\ud800") & set(document)
    return reader


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_shows_hostile_text_as_text(text: str) -> None:
    document = table([text], [[text], [Coloured(text, "red")]], caption=text)
    reader = check_harmless(document)
    assert not reader.names & {"img", "svg"}
    ElementTree.fromstring(document)


@pytest.mark.parametrize("text", HOSTILE)
def test_facts_attributes_and_logs_show_hostile_text_as_text(text: str) -> None:
    check_harmless(facts(text, {text: text}))
    check_harmless(element("span", text, title=text))
    assert set(Reader(escaped(text)).names) == set()


def test_log_lines_are_escaped_line_by_line() -> None:
    document = lines(["loss 0.5", "<b>bold</b> & more"])
    assert Reader(document).text == "loss 0.5\n<b>bold</b> & more"
    assert "<b>" not in document


def test_markup_is_used_as_it_is() -> None:
    assert escaped(Markup("<b>")) == "<b>"
    assert escaped("<b>") == html.escape("<b>")


def test_numbers_are_grouped_and_aligned_to_the_right() -> None:
    document = table(["records"], [[1234567], [True], ["text"]])
    assert "text-align:right" in document.partition("1,234,567")[0].rpartition("<td")[2]
    assert "text-align:left" in document.partition(">text<")[0].rpartition("<td")[2]


def test_a_colour_is_said_in_words_too() -> None:
    assert Reader(escaped(Coloured("READY", "green"))).text == "● READY"
    assert str(Coloured("READY", "green")) == "READY"


def test_facts_leave_out_what_is_empty() -> None:
    assert Reader(facts("Run r1", {"state": "running", "ended": "", "exit": None, "step": 0})).text == (
        "Run r1staterunningstep0"
    )


def style(document: str, text: str, name: str = "td") -> str:
    """The style of the element that has a text."""
    found = next(item for item in ElementTree.fromstring(document).iter(name) if item.text == text)
    return found.attrib["style"]


def test_names_of_attributes_are_those_of_html() -> None:
    assert element("a", 1, "<", class_="x", stroke_width=1.5, aria_label='"') == (
        '<a class="x" stroke-width="1.5" aria-label="&quot;">1&lt;</a>'
    )
    assert element("b") == "<b></b>"


def test_parts_are_joined_without_anything_between() -> None:
    shown = joined(("<", Markup("<b></b>"), 1))
    assert shown == "&lt;<b></b>1"
    assert isinstance(shown, Markup)


@pytest.mark.parametrize("colour", DOTS)
def test_a_dot_has_its_colour_and_is_not_read_aloud(colour: str) -> None:
    dot = ElementTree.fromstring(f"<p>{escaped(Coloured('<READY>', colour))}</p>")[0]
    assert dot.get("style") == f"color:{DOTS[colour]}"
    assert dot.get("aria-hidden") == "true"
    assert dot.tail == " <READY>"


def test_every_colour_is_another_one() -> None:
    assert len(set(DOTS.values())) == len(DOTS)
    assert all(len(colour) == 7 and int(colour.removeprefix("#"), 16) for colour in DOTS.values())


def test_a_table_has_its_headings_rows_and_caption() -> None:
    root = ElementTree.fromstring(table(["a", "b"], [["1", "2"], ["3", "4"]], "two rows"))
    assert root.get("class") == "tpuctl"
    assert [item.text for item in root.iter("th")] == ["a", "b"]
    assert {item.get("scope") for item in root.iter("th")} == {"col"}
    rows = [[cell.text for cell in row] for row in root.findall(".//tbody/tr")]
    assert rows == [["1", "2"], ["3", "4"]]
    assert root[-1].text == "two rows"
    assert "overflow:auto" in root[0].attrib["style"], "it scrolls"
    assert len(ElementTree.fromstring(table(["a"], [["1"]]))) == 1, "without a caption nothing is below"


def test_facts_have_a_title_and_a_row_for_each_name() -> None:
    root = ElementTree.fromstring(facts("Run r1", {"state": "running", "step": 1234}))
    assert root.get("class") == "tpuctl"
    assert root[0].text == "Run r1"
    assert [[cell.text for cell in row] for row in root.findall(".//tbody/tr")] == [
        ["state", "running"],
        ["step", "1,234"],
    ]
    assert {item.get("scope") for item in root.iter("th")} == {"row"}
    assert "overflow:auto" in root[1].attrib["style"], "it scrolls"


@pytest.mark.parametrize(
    ("value", "text", "side"),
    [(1234, "1,234", "right"), (0.5, "0.5", "right"), ("1234", "1234", "left")],
)
def test_a_cell_is_aligned_by_what_it_is(value: object, text: str, side: str) -> None:
    assert f"text-align:{side}" in style(table(["a"], [[value]]), text)
    assert "text-align:left" in style(facts("", {"a": value}), text), "a fact is read from the left"


def test_a_truth_value_is_no_number_of_something() -> None:
    assert Reader(table(["a"], [[True], [False]])).text == "aTrueFalse"


def test_long_texts_wrap_and_short_ones_do_not() -> None:
    for length, wraps in ((1, False), (60, False), (61, True)):
        assert ("white-space:normal" in style(table(["a"], [["x" * length]]), "x" * length)) is wraps
        assert ("white-space:nowrap" in style(table(["a"], [["x" * length]]), "x" * length)) is not wraps
    assert "white-space:normal" in style(facts("", {"a": "x"}), "x"), "facts always wrap"
    picture = Markup(f"<img alt='{'x' * 100}'/>")
    cell = ElementTree.fromstring(table(["a"], [[picture]])).find(".//td")
    assert cell is not None
    assert "white-space:nowrap" in cell.attrib["style"], "of markup it is not known how long it looks"


def test_headings_are_bold_and_left() -> None:
    for document in (table(["a"], [["x"]]), facts("", {"a": "x"})):
        assert "text-align:left;font-weight:600" in style(document, "a", "th")


def test_a_block_of_lines_scrolls_and_keeps_its_spaces() -> None:
    root = ElementTree.fromstring(lines(iter(["a  b", " c"])))
    assert (root.tag, root.text) == ("pre", "a  b\n c")
    assert "overflow:auto" in root.attrib["style"]
    assert "white-space:pre-wrap" in root.attrib["style"]


def test_lines_of_a_log_are_not_changed_again() -> None:
    assert Reader(lines(["a\tb", '"quoted"'])).text == 'a\tb\n"quoted"'


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ended", None, ""),
        ("ended", datetime(2026, 1, 31, 23, 59, tzinfo=UTC), "2026-01-31T23:59:00Z"),
        ("duration", timedelta(seconds=90.6), "1m31s"),
        ("spot", True, "yes"),
        ("spot", False, ""),
        ("image", (b"\xff\xd8" * 800,), "1,600 bytes"),
        ("text", (b"a", "b"), "a, b"),
        ("values", {"label": (0,), "text": (b"cat",)}, "label=0, text=cat"),
        ("text", "x" * 1_000_000, "x" * MOST_CHARACTERS + "..."),
        ("splits", ("train", "test"), "train, test"),
        ("tags", {"team": "vision", "keep": ""}, "team=vision, keep"),
        ("seconds", 5400.4, "1h30m"),
        ("records", 12, 12),
        ("bytes", 1_250_000, "1.2 MB"),
        ("bytes", "of a later version", "of a later version"),
        ("bytes", 1.5, 1.5),
        ("records", 1.5, 1.5),
        ("size", 1_250_000, 1_250_000),
        ("seconds", 90, "1m30s"),
        ("setup_seconds", 0, "0s"),
        ("seconds", None, ""),
        ("seconds", True, "yes"),
        ("text", "x" * (MOST_CHARACTERS + 1), "x" * MOST_CHARACTERS + "..."),
        ("text", "x" * MOST_CHARACTERS, "x" * MOST_CHARACTERS),
        ("text", b"\xff" * 3, "3 bytes"),
        ("text", b"", ""),
        ("splits", (), ""),
        ("splits", ["test"], "test"),
        ("splits", frozenset({"test"}), "test"),
        ("values", {}, ""),
        ("values", {"none": None, 1: 0}, "none, 1=0"),
        ("values", {"nested": {"a": [1, 2]}}, "nested=a=1, 2"),
    ],
)
def test_values_are_said_as_people_read_them(name: str, value: object, text: object) -> None:
    assert cell(name, value) == text


@pytest.mark.parametrize(
    ("text", "colour"),
    [("READY", "green"), ("failed", "red"), ("CREATING", "amber"), ("of a later version", "grey")],
)
def test_a_state_has_its_colour(text: str, colour: str) -> None:
    assert coloured_state(text).colour == colour
    assert coloured_state(text) == text


@pytest.mark.parametrize("name", ["state", "outcome"])
@pytest.mark.parametrize("value", ["READY", NodeState.READY])
def test_a_field_that_is_a_state_has_its_colour(name: str, value: object) -> None:
    shown = cell(name, value)
    assert isinstance(shown, Coloured)
    assert (str(shown), shown.colour) == ("READY", "green")
    assert not isinstance(cell("node", value), Coloured)


@pytest.mark.parametrize(
    ("colour", "states"),
    [
        ("green", (QueueState.ACTIVE, "running", "succeeded")),
        ("red", (QueueState.SUSPENDED, QueueState.FAILED, NodeState.PREEMPTED, "lost", "preempted")),
        ("amber", (QueueState.WAITING, QueueState.PROVISIONING, QueueState.SUSPENDING, QueueState.DELETING)),
        ("amber", (NodeState.CREATING, NodeState.STARTING, NodeState.STOPPING, NodeState.REPAIRING)),
        ("amber", ("maintenance", "stopped", "queued", "preparing")),
        ("grey", (NodeState.GONE, NodeState.UNKNOWN, "")),
    ],
)
def test_what_works_is_green_what_failed_red_and_what_changes_amber(
    colour: str, states: tuple[str, ...]
) -> None:
    assert {coloured_state(str(text)).colour for text in states} == {colour}
    assert colour in DOTS


def test_no_text_of_a_cell_is_longer_than_a_few_lines() -> None:
    assert 100 <= MOST_CHARACTERS <= 1000


@dataclass(frozen=True)
class Worker:
    """A record within another."""

    worker: int
    error: str = ""


@dataclass(frozen=True)
class Amount:
    """A record that says itself."""

    amount: int

    def __str__(self) -> str:
        return f"{self.amount} USD"


@dataclass(frozen=True)
class Result:
    """A record."""

    name: str
    state: str = "READY"
    ended: datetime | None = None
    cost: Amount = Amount(3)
    workers: tuple[Worker, ...] = ()
    stdout: str = ""
    best: Worker | None = None


def text(result: Result) -> str:
    return Reader(record_html(result)).text


def test_fields_with_values_are_shown_and_others_left_out() -> None:
    shown = text(Result("r1", ended=datetime(2026, 1, 31, tzinfo=UTC)))
    assert shown == "Result r1state● READYended2026-01-31T00:00:00Zcost3 USD"


def test_records_within_it_are_tables_without_empty_columns() -> None:
    shown = text(Result("r1", workers=(Worker(0), Worker(1)), best=Worker(2, "lost")))
    assert "workersworker01" in shown
    assert "bestWorkerworker2errorlost" in shown


def test_much_is_cut() -> None:
    many = Result("r1", workers=tuple(map(Worker, range(1000))), stdout="x\n" * 1000)
    assert f"... and {1000 - MOST_ROWS} more" in text(many)
    assert text(many).count("x\n") == MOST_LINES - 1


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_values_are_text(hostile: str) -> None:
    record = Result(hostile, hostile, workers=(Worker(1, hostile),), stdout=f"{hostile}\n{hostile}")
    check_harmless(record_html(record))
