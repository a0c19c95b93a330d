"""Tests tables of records, and pictures."""

from __future__ import annotations

import copy
import pickle
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.listing import MOST_LINES, MOST_ROWS, Listing, Picture


class City(NamedTuple):
    """A record."""

    name: str
    people: int
    motto: str = ""


COLUMNS = {"name": attrgetter("name"), "people": attrgetter("people"), "motto": attrgetter("motto")}
CITIES = Listing([City("Oslo", 709_037), City("東京", 14_000_000)], "cities", COLUMNS)


def test_it_is_a_tuple_of_its_records() -> None:
    assert (City("Oslo", 709_037), City("東京", 14_000_000)) == CITIES
    assert CITIES[0].name == "Oslo"
    assert [city.people for city in CITIES] == [709_037, 14_000_000]


def test_plain_python_shows_a_table_without_empty_columns() -> None:
    assert repr(CITIES) == "NAME  PEOPLE\nOslo  709,037\n東京  14,000,000"


def test_a_slice_is_a_listing_and_an_element_a_record() -> None:
    assert repr(CITIES[1:]) == "NAME  PEOPLE\n東京  14,000,000"
    assert isinstance(CITIES[-1], City)


def test_no_records_are_said() -> None:
    assert repr(CITIES[:0]) == "(no cities)"
    assert "no cities" in CITIES[:0]._repr_html_()


def test_long_listings_are_cut_and_counted() -> None:
    many = Listing([City(f"city{number}", number) for number in range(1000)], "cities", COLUMNS)
    assert repr(many).count("\n") == MOST_LINES + 1
    assert repr(many).endswith(f"... and {1000 - MOST_LINES} more cities")
    assert many._repr_html_().count("<tr>") == MOST_ROWS + 1
    assert f"... and {1000 - MOST_ROWS} more cities" in many._repr_html_()


def test_hostile_names_are_text_in_both_forms() -> None:
    hostile = Listing([City(text, 1, text) for text in HOSTILE], "cities", COLUMNS)
    check_harmless(hostile._repr_html_())
    assert repr(hostile).count("\n") == len(HOSTILE)
    assert not set("\u202e\u2066\u2069\x1b\x00\ud800") & set(repr(hostile))


def test_it_can_be_copied_and_pickled() -> None:
    names = Listing([("a",), ("b",)], "names", {"name": itemgetter(0)})
    assert repr(copy.copy(names)) == repr(names)
    assert repr(pickle.loads(pickle.dumps(names))) == repr(names)


def numbered(count: int) -> Listing[City]:
    return Listing([City(f"city{number}", number) for number in range(count)], "cities", COLUMNS)


def test_a_listing_that_fits_says_nothing_of_more() -> None:
    assert repr(numbered(MOST_LINES)).endswith(f"\ncity{MOST_LINES - 1}  {MOST_LINES - 1}")
    assert "more" in repr(numbered(MOST_LINES + 1))
    assert repr(numbered(MOST_LINES + 2)).endswith("\n... and 2 more cities")
    assert Reader(numbered(MOST_ROWS)._repr_html_()).text.endswith(f"{MOST_ROWS} cities")
    assert "more" in Reader(numbered(MOST_ROWS + 1)._repr_html_()).text
    assert Reader(numbered(MOST_ROWS + 2)._repr_html_()).text.endswith("... and 2 more cities")


def test_a_notebook_counts_the_records() -> None:
    runs = Listing(["a", "b"], "runs", {"name": str})
    assert Reader(runs._repr_html_()).text == "nameab2 runs"
    assert Reader(runs[:1]._repr_html_()).text == "namea1 run"
    assert runs[:0]._repr_html_() == '<div class="tpuctl">no runs</div>'


def test_a_column_is_shown_where_any_record_has_a_value() -> None:
    records = [City("Oslo", 0), City("Paris", 0, "Fluctuat nec mergitur")]
    cities = Listing(records, "cities", COLUMNS)
    assert repr(cities) == ("NAME   PEOPLE  MOTTO\nOslo   0\nParis  0       Fluctuat nec mergitur"), (
        "0 is a value"
    )
    assert repr(cities[:1]) == "NAME  PEOPLE\nOslo  0"


def test_a_column_beyond_the_rows_that_are_shown_is_left_out() -> None:
    hidden = Listing([*numbered(MOST_LINES), City("last", 1, "motto")], "cities", COLUMNS)
    assert "MOTTO" not in repr(hidden)
    assert "motto" in Reader(hidden._repr_html_()).text


def test_slices_have_the_noun_and_the_columns_of_the_whole() -> None:
    part = numbered(9)[2:8:3]
    assert (part.noun, part.columns) == ("cities", COLUMNS)
    assert part == (City("city2", 2), City("city5", 5))


PICTURE = Picture(b"\x89PNG", "2 pictures of pets", ("cannot be decoded",))


def test_it_shows_itself_as_png_and_says_what_it_is() -> None:
    assert PICTURE._repr_png_() == b"\x89PNG"
    assert repr(PICTURE) == "<2 pictures of pets, 1 not drawn: .save('FILE.png')>"


def test_it_is_saved_into_a_file(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes() == b"\x89PNG"
