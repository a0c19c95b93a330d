"""Columns of a table: their labels, options and cells.

Columns at once give the bytes of one row after the other.
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import no_progress
from tests.data.tables.hostile_tables import ODD_TEXTS, csv_table
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import Image, Label, Several, Tensor
from tpuctl.data.source import Observations
from tpuctl.data.sources import csv_files
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tables.columns import (
    Column,
    Columns,
    InvalidValue,
    check_options,
    check_width,
    class_column,
    label_column,
    real,
    target_column,
    whole,
)
from tpuctl.data.tables.csv_cells import given_column
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.errors import UsageError


@pytest.mark.parametrize(
    ("options", "names", "label"),
    [
        (Options(), ["x", "label"], ("label", False)),
        (Options(), ["x", "Class"], ("Class", False)),
        (Options(), ["CLASS", "Label"], ("Label", False)),
        (Options(), ["LABEL", "label"], ("LABEL", False)),
        (Options(), ["x", "labels"], ("", False)),
        (Options(), [], ("", False)),
        (Options(label="x"), ["x", "label"], ("x", True)),
        (Options({"x": "label"}), ["x", "label"], ("x", True)),
        (Options({"label": "text"}), ["label", "class"], ("class", False)),
        (Options({"label": "text"}), ["label"], ("", False)),
        (Options({"x": "label"}, "y"), ["x", "y"], ("y", True)),
    ],
)
def test_the_label_is_the_users_or_called_so(
    options: Options, names: list[str], label: tuple[str, bool]
) -> None:
    assert label_column(options, names) == label


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (Options({"ag": "int"}), "'a.csv' has no column 'ag'.", "Did you mean age?"),
        (Options(label="xyz"), "'a.csv' has no column 'xyz'.", "It has age, name."),
        (
            Options({"age": "number"}),
            "'number' is not a type, for the column 'age'.",
            "One of int, float, bool, text, bytes, label.",
        ),
        (
            Options({"age": "label", "name": "label"}),
            "age and name cannot both be the label.",
            "Give one of them another type.",
        ),
        (Options(resize=(1, 1)), "'a.csv' has no images to bring to one size.", "Run it without --resize."),
        (Options(channels=3), "'a.csv' has no images, which have channels.", "Run it without --channels."),
    ],
)
def test_options_that_a_table_cannot_follow_are_refused(options: Options, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(options, ["age", "name"], "'a.csv'")
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_options_that_it_can_follow_are_taken() -> None:
    check_options(Options({"age": "int", "name": "label"}, "name"), ["age", "name"], "'a.csv'")
    check_options(Options(resize=(1, 1), channels=3), ["age"], "'a.csv'", images=True)
    with pytest.raises(UsageError, match=r"^x has no column 'b'\.$") as refused:
        check_options(Options(label="b"), [f"a{number}" for number in range(25)], "x")
    assert refused.value.hint in ("It has " + ", ".join(f"a{number}" for number in range(20)) + ".",)


def test_a_table_has_at_most_a_hundred_thousand_columns() -> None:
    check_width(100_000, "a.csv")
    with pytest.raises(UsageError, match=r"^'a\.csv' has 100001 columns, and at most 100000 can be read\.$"):
        check_width(100_001, "a.csv")


@pytest.mark.parametrize("number", [0, (1 << 63) - 1, -(1 << 63)])
def test_a_whole_number_has_64_bits(number: int) -> None:
    assert whole(number) == number


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_a_larger_whole_number_is_refused(number: int) -> None:
    with pytest.raises(InvalidValue):
        whole(number)


def test_a_number_is_one_that_rounds_to_32_bits() -> None:
    first = 3.4028235677973366e38
    below = float(np.nextafter(first, 0))
    assert [real(number) for number in (below, -below, 0.0, math.inf)] == [below, -below, 0.0, math.inf]
    assert math.isnan(real(math.nan))
    for number in (first, -first):
        with pytest.raises(InvalidValue):
            real(number)


def said(column: Column[Any], cell: object) -> tuple[str, str]:
    record = Columns([column], "").record([cell])
    assert record.example == b""
    return record.why, record.hint


@pytest.mark.parametrize(
    ("kind", "cell", "why", "hint"),
    [
        ("int", "x", "has 'x' in the column 'n', which holds whole numbers", "text"),
        ("int", "0.5", "has '0.5' in the column 'n', which holds whole numbers", "float"),
        ("int", "", "has nothing in the column 'n', which holds whole numbers", "float"),
        ("int", " ", "has nothing in the column 'n', which holds whole numbers", "float"),
        ("int", "NA", "has 'NA' in the column 'n', which holds whole numbers", "float"),
        ("int", "inf", "has 'inf' in the column 'n', which holds whole numbers", "text"),
        ("int", "1e39", "has '1e39' in the column 'n', which holds whole numbers", "text"),
        ("float", "x", "has 'x' in the column 'n', which holds numbers", "text"),
        ("float", "1e39", "has '1e39' in the column 'n', which holds numbers", "text"),
        ("bool", "2", "has '2' in the column 'n', which holds true or false", "text"),
        ("int", "x" * 40, f"has '{'x' * 40}' in the column 'n', which holds whole numbers", "text"),
        ("int", "x" * 41, f"has '{'x' * 37}...' in the column 'n', which holds whole numbers", "text"),
    ],
)
def test_a_cell_that_does_not_fit_is_named_with_the_type_that_does(
    kind: str, cell: str, why: str, hint: str
) -> None:
    assert said(given_column("n", kind), cell) == (why, f"Give --type n={hint}")


def refuse(cell: object) -> int:
    raise InvalidValue("is damaged")


def test_other_cells_are_named_by_what_they_are() -> None:
    number = Column("n", Tensor("int64"), refuse, "whole numbers")
    assert said(number, None) == (
        "has nothing in the column 'n', which holds whole numbers",
        "Give --type n=float",
    )
    assert said(number, b"\xff")[0] == "has 'bytes' in the column 'n', which holds whole numbers"
    assert said(number, {"a": 1})[0] == "has 'bytes' in the column 'n', which holds whole numbers"
    image = Column("p", Image((None, None, 3)), refuse, "images")
    assert said(image, b"x") == ("has an image in the column 'p' which is damaged", "")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("", "has no label in the column 'y'"),
        (None, "has no label in the column 'y'"),
        ("n/a", "has no label in the column 'y'"),
        ("cow", "has the label 'cow', which is no class, in the column 'y'"),
    ],
)
def test_a_label_that_is_no_class_is_named(cell: object, why: str) -> None:
    collector = ClassCollector("y")
    collector.add(["cat", "dog"])
    assert said(class_column("y", collector.finish()), cell) == (why, "")


def test_lists_of_classes_are_numbers() -> None:
    collector = ClassCollector("y")
    collector.add([["cat", "dog"]])
    column = class_column("y", collector.finish())
    assert (column.feature, column.holds) == (Several(Label(("cat", "dog"))), "lists of classes")
    assert [column.convert(cell) for cell in (None, [], ["dog", "cat"])] == [[], [], [1, 0]]
    with pytest.raises(InvalidValue):
        column.convert("cat")
    with pytest.raises(KeyError):
        column.convert(["cow"])


def test_a_target_is_never_missing() -> None:
    column = target_column(given_column("y", "float"))
    assert column.convert("0.5") == 0.5
    for cell in ("", "nan"):
        with pytest.raises(InvalidValue):
            column.convert(cell)


def test_rows_become_records_of_their_columns() -> None:
    columns = Columns([given_column("b", "int"), given_column("a", "text")], "b")
    assert columns.supervised == ("a", "b")
    assert decode(columns.record(["1", "x"]).example) == {"a": [b"x"], "b": [1]}
    assert columns.examples([["1", "x"], ["2", "y"]]) == [
        columns.record([number, text]).example for number, text in (("1", "x"), ("2", "y"))
    ]
    assert columns.examples([["1", "x"], ["z", "y"]]) is None
    assert Columns([given_column("a", "int")], "").supervised is None


def test_columns_of_rows_become_framed_records_or_none() -> None:
    columns = Columns(
        [
            given_column("b", "int")._replace(convert_many=None),
            given_column("a", "text")._replace(convert_many=None),
        ],
        "b",
    )
    cells = [["1", "2"], ["x", "y"]]
    frames = columns.frames(cells, list, None)
    assert frames is not None
    assert list(frames.records()) == columns.examples([["1", "x"], ["2", "y"]])
    of_classes = columns.frames(cells, list, np.array([7, 8]))
    assert of_classes is not None
    assert [decode(record)["b"] for record in of_classes.records()] == [[7], [8]]
    assert columns.frames(cells, list, np.array([7, -1])) is None
    assert columns.frames([["1", "z"], ["x", "y"]], list, None) is None


def test_a_name_in_a_hint_is_one_word_of_a_shell() -> None:
    """Users copy it; a table from elsewhere names its columns."""
    assert said(given_column("x; rm -rf ~", "int"), "a")[1] == "Give --type 'x; rm -rf ~'=text"


Make = Callable[[random.Random], object]
NAN = np.array([0x7F800001], np.uint32).view(np.float32)[0]
"""One with a payload, which signals."""

_COLUMNS: tuple[tuple[pa.DataType, Make], ...] = (
    (pa.int64(), lambda rng: rng.choice([0, -1, 2**63 - 1, -(2**63), rng.randrange(10**12)])),
    (pa.int8(), lambda rng: rng.randrange(-128, 128)),
    (pa.uint64(), lambda rng: rng.choice([0, 2**63 - 1, rng.randrange(2**60)])),
    (pa.uint64(), lambda rng: rng.choice([2**63, 1])),
    (pa.float32(), lambda rng: rng.choice([0.0, -0.0, float("inf"), rng.random(), 3.4e38, 1e-45])),
    (pa.float64(), lambda rng: rng.choice([-0.0, float("-inf"), rng.uniform(-1e9, 1e9), 5e-324, 1e-46])),
    (pa.float64(), lambda rng: rng.choice([1.0] * 50 + [1e39])),
    (pa.float16(), lambda rng: np.float16(rng.random())),
    (pa.bool_(), lambda rng: rng.random() < 0.5),
    (pa.string(), lambda rng: rng.choice([*ODD_TEXTS, f"text {rng.randrange(1000)}"])),
    (pa.string(), lambda rng: rng.choice(["cat", "dog", "bird"])),
    (pa.large_string(), lambda rng: rng.choice([*ODD_TEXTS[:12], str(rng.random())])),
    (pa.binary(), lambda rng: rng.randbytes(rng.choice([0, 1, 7, 200]))),
    (pa.binary(4), lambda rng: rng.randbytes(4)),
    (pa.dictionary(pa.int8(), pa.string()), lambda rng: rng.choice(["a", "bb", "é", ""])),
    (pa.list_(pa.int64()), lambda rng: [rng.randrange(300) for _ in range(rng.randrange(4))]),
    (pa.list_(pa.float32(), 3), lambda rng: [rng.random() for _ in range(3)]),
    (pa.list_(pa.string()), lambda rng: [rng.choice(ODD_TEXTS[:5]) for _ in range(rng.randrange(3))]),
    (pa.decimal128(9, 2), lambda rng: decimal.Decimal(rng.randrange(10**6)) / 100),
    (pa.date32(), lambda rng: datetime.date(2020, 1, 1) + datetime.timedelta(days=rng.randrange(1000))),
    (pa.timestamp("us"), lambda rng: datetime.datetime(2020, 1, rng.randrange(1, 28), rng.randrange(24))),
)  # fmt: skip
_FLAT = 15
"""Columns of the first so many types are what a record can hold as it is, but for one."""


def write_parquet(file: Path, seed: int) -> dict[str, str]:
    """Write a file; return types that a user may give for some of its columns."""
    rng = random.Random(seed)
    count = rng.choice((1, 20, 300))
    nulls = rng.choice((0.0, 0.0, 0.1, 1.0))
    columns, types = {}, {}
    for place in range(rng.randrange(1, 5)):
        kind, make = rng.choice(_COLUMNS if rng.random() < 0.5 else _COLUMNS[:_FLAT])
        cells = [None if rng.random() < nulls else make(rng) for _ in range(count)]
        name = rng.choice(("label", f"c{place}", f"c{place}"))
        columns[name] = pa.array(cells, kind)
        if rng.random() < 0.2:
            types[name] = rng.choice(("int", "float", "text", "bytes", "bool", "label"))
    if rng.random() < 0.2:
        columns["nan"] = pa.array(np.full(count, NAN))
    pq.write_table(
        pa.table(columns),
        file,
        row_group_size=rng.choice((7, 100, 10_000)),
        use_dictionary=rng.choice((True, False)),
        data_page_size=rng.choice((100, 1 << 20)),
        dictionary_pagesize_limit=rng.choice((50, 1 << 20)),
        compression=rng.choice(("none", "snappy")),
    )
    return types


TABLES = 50
NO_TYPES: Mapping[str, str] = {}


def reading(file: Path, seed: int, types: Mapping[str, str] = NO_TYPES) -> object:
    """What a reader says of a file, and its records in a shuffled order; or why it refuses the file."""
    try:
        source = open_source(file, None, Options(types=dict(types)), no_progress)
    except UsageError as error:
        return error.message, error.hint
    order = np.random.default_rng(seed).permutation(sum(part.records for part in source.parts))
    records = list(source.read(order, Observations()))
    labels = None if source.labels is None else source.labels.tolist()
    source.close()
    return source.features, source.supervised, source.parts, labels, records


def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no rows of CSV files are split at once."""
    monkeypatch.setattr(csv_files, "split_cells", lambda *arguments: None)


@pytest.mark.daily
def test_hostile_tables_are_read_as_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    at_once = []
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        at_once.append(reading(file, seed))
    row_by_row(monkeypatch)
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        assert reading(file, seed) == at_once[seed], seed


def test_hostile_parquet_files_are_read_as_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.parquet"
    at_once = [reading(file, seed, write_parquet(file, seed)) for seed in range(TABLES)]
    monkeypatch.setattr(Columns, "frames", lambda *arguments: None)
    for seed in range(TABLES):
        assert reading(file, seed, write_parquet(file, seed)) == at_once[seed], seed


def test_the_hostile_tables_take_both_ways(tmp_path: Path) -> None:
    file, frames, bad = tmp_path / "rows.csv", 0, 0
    for seed in range(TABLES):
        file.write_bytes(csv_table(seed))
        try:
            source = open_source(file, None, Options(), no_progress)
        except UsageError:
            continue
        count = sum(part.records for part in source.parts)
        blocks = list(source.blocks(np.arange(count), Observations()))
        frames += any(isinstance(block, Frames) for block in blocks)
        bad += any(isinstance(block, BadRecord) for block in blocks)
        source.close()
    assert frames > TABLES // 3
    assert bad > TABLES // 10


def test_shards_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    rows = [f'{n},{n / 7},"a ""quoted"" {n}",{"x" * (n % 300)},{n % 3}' for n in range(5_000)]
    file.write_text("\n".join(["n,x,text,long,label", *rows]))
    shards = []
    for _ in range(2):
        made = plan(file, name="rows", splits="train=0.8,test=0.2", shards=2)
        shards.append([b"".join(shard.stream()) for shard in made.shards()])
        made.source.close()
        row_by_row(monkeypatch)
    assert shards[0] == shards[1]
