"""Tests that HTML shows text from strangers as text, and nothing of it as markup."""

from __future__ import annotations

import html
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tpuctl.display.markup import Coloured, Markup, element, escaped, facts, lines, table

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
    allowed |= {"svg", "path", "text", "circle", "title", "desc"}
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
