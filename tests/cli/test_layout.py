"""Tables fit the width that there is, and nothing of them is lost."""

from __future__ import annotations

import re

import pytest

from tpuctl.cli.output import GAP, fit

NODES = [
    ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE"],
    ["ada-v3-8", "europe-west4-a", "v3-8", "1", "READY", "no", "tpu-vm-tf-2.18.0-pjrt", "0s"],
    [
        "a-colleagues-v5litepod-256",
        "us-central1-a",
        "v5litepod-256",
        "",
        "CREATING",
        "yes",
        "v2-alpha-tpuv5",
        "3h",
    ],
]
PUBLIC = [
    ["NAME", "SIZE", "WHAT", "LICENCE"],
    [
        "cats_dogs",
        "824.9 MB",
        "25,000 photographs of cats and dogs, of many sizes",
        "Microsoft's own, in the archive",
    ],
    ["reuters", "", "11,228 newswire stories of 1987", "copyright Reuters Ltd.; for research only"],
]
TABLES = pytest.mark.parametrize("lines", [NODES, PUBLIC], ids=["nodes", "public"])


def printed(lines: list[list[str]], columns: int | None) -> list[str]:
    return [GAP.join(cells).rstrip() for cells in fit(lines, columns)]


@TABLES
@pytest.mark.parametrize("columns", [None, 200])
def test_with_room_enough_a_row_is_one_line(lines: list[list[str]], columns: int | None) -> None:
    assert [re.split(r" {2,}", line.strip()) for line in printed(lines, columns)] == [
        [cell for cell in row if cell] for row in lines
    ]


@TABLES
@pytest.mark.parametrize("columns", range(40, 140, 3))
def test_no_line_is_longer_than_the_terminal_and_no_character_is_lost(
    lines: list[list[str]], columns: int
) -> None:
    text = printed(lines, columns)
    assert max(map(len, text)) <= columns
    shown = sorted("".join("".join(text).split()))
    blocks = sorted("".join("".join(row) for row in lines).replace(" ", ""))
    if shown != blocks:  # blocks repeat the header for each row
        header, *rows = lines
        assert shown == sorted("".join("".join(header + row) for row in rows).replace(" ", ""))


@pytest.mark.parametrize("columns", range(60, 140, 5))
def test_values_are_folded_between_words(columns: int) -> None:
    words = {word for row in PUBLIC for cell in row for word in cell.split()}
    assert {word for line in printed(PUBLIC, columns) for word in line.split()} == words


def test_a_name_is_folded_at_its_dashes_where_words_are_too_long_and_the_first_column_last() -> None:
    assert printed(NODES[:2], 60) == [
        "NAME      ZONE     TYPE  HOSTS  STATE  SPOT  RUNTIME     AGE",
        "ada-v3-8  europe-  v3-8  1      READY  no    tpu-vm-tf-  0s",
        "          west4-a                            2.18.0-",
        "                                             pjrt",
    ]


@pytest.mark.parametrize(
    ("row", "columns", "lines"),
    [
        (["first first", "other"], 13, ["first   other", "first"]),
        (["first first", "other other"], 18, ["first first  other", "             other"]),
        (["first first", "other other", "a b"], 23, ["first first  other  a b", "             other"]),
        (["first", "a a", "other other"], 17, ["first  a a  other", "            other"]),
        (["first", "other other", "a a"], 17, ["first  other  a a", "       other"]),
    ],
)
def test_the_widest_column_is_folded_but_the_first_one_last(
    row: list[str], columns: int, lines: list[str]
) -> None:
    shown = printed([["A", "B", "C"][: len(row)], row], columns)
    assert shown[1:] == lines
    assert max(map(len, shown)) <= columns


def test_where_nothing_helps_each_row_is_a_block() -> None:
    assert printed(NODES[:2], 30) == [
        "NAME     ada-v3-8", "ZONE     europe-west4-a", "TYPE     v3-8", "HOSTS    1", "STATE    READY",
        "SPOT     no", "RUNTIME  tpu-vm-tf-2.18.0-pjrt", "AGE      0s",
    ]  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    assert printed(NODES[:1], 200) == [GAP.join(NODES[0])]
