from __future__ import annotations

import csv
import gzip
import io
import math
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.source_trees import examples, items, no_progress, only_bad, opened, produce
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.output.manifest import decode_manifest
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Feature, Label, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.csv_files import read_csv
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError

NOTHING = Options()
PEOPLE = "age,height,name,member,label\n31,1.75,Ann,true,b\n4,0.9,Zoë,false,a\n70,1.6,,true,b\n"


def read(
    content: str | bytes, tmp_path: Path, options: Options = NOTHING, name: str = "people.csv"
) -> Source:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_(file, options)


def open_(path: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(read_csv(LocalTree.at(path), options, no_progress))


def column(name: str, source: Source) -> list[object]:
    return [decode(record)[name][0] for record in items(source) if isinstance(record, bytes)]


def refused(content: str | bytes, tmp_path: Path, options: Options = Options()) -> UsageError:  # noqa: B008
    with pytest.raises(UsageError) as caught:
        read(content, tmp_path, options)
    assert caught.value.hint
    return caught.value


def test_each_row_becomes_a_record_of_inferred_types(tmp_path: Path) -> None:
    source = read(PEOPLE, tmp_path)
    assert dict(source.features) == {
        "age": Tensor("int64"),
        "height": Tensor("float32"),
        "name": Text(),
        "member": Tensor("bool"),
        "label": Label(("a", "b")),
    }
    assert decode(items(source)[1]) == {  # type: ignore[arg-type]
        "age": [4],
        "height": [pytest.approx(0.9)],
        "label": [0],
        "member": [0],
        "name": ["Zoë".encode()],
    }
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 1]
    assert source.supervised is None  # several columns: which are the input is not ours to say


def test_rows_come_in_any_order_and_again_and_from_two_threads(tmp_path: Path) -> None:
    source = read("x,label\n" + "".join(f"{n},{n % 3}\n" for n in range(5000)), tmp_path)
    expected = items(source)
    assert column("x", source) == list(range(5000))
    assert items(source, 4999, 0, 17, 17) == [expected[4999], expected[0], expected[17], expected[17]]
    results: list[list[object]] = [[], []]

    def work(place: int) -> None:
        results[place] += items(source, *range(place, 5000, 7))

    threads = [Thread(target=work, args=(place,), daemon=True) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected[0::7], expected[1::7]]


def test_rows_are_found_again_where_their_places_do_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.csv", "b.csv", "c.csv.gz"):
        text = "\nx,label\n" + "".join(f"{name}-{n},{n % 3}\n" for n in range(100))
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    expected = items(open_(tmp_path))
    monkeypatch.setattr("tpuctl.data.files.temp_files._MOST_HELD", 10)
    assert items(open_(tmp_path)) == expected
    assert len(expected) == 300
    assert items(open_(tmp_path), 299, 100, 0) == [expected[299], expected[100], expected[0]]


@pytest.mark.parametrize("name", ["people.csv.gz", "people.tsv", "people.tsv.gz"])
def test_tabs_and_gzip_give_the_same_records(tmp_path: Path, name: str) -> None:
    content = (PEOPLE.replace(",", "\t") if "tsv" in name else PEOPLE).encode()
    source = read(gzip.compress(content) if name.endswith("gz") else content, tmp_path, name=name)
    assert items(source) == items(read(PEOPLE, tmp_path))


def test_semicolons_are_told_by_the_header(tmp_path: Path) -> None:
    assert items(read(PEOPLE.replace(",", ";"), tmp_path)) == items(read(PEOPLE, tmp_path))


def test_a_byte_order_mark_crlf_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    odd = "\ufeff\r\n" + PEOPLE.replace("\n", "\r\n\r\n").rstrip()
    assert items(read(odd, tmp_path)) == items(read(PEOPLE, tmp_path))


def test_files_of_a_folder_are_its_splits(tmp_path: Path) -> None:
    for name, rows in {"test.csv": 2, "train-1.csv": 3, "train-2.csv": 0, "train-3.csv": 4}.items():
        read(
            "x,label\n" + "".join(f"{n},a\n" for n in range(rows)) or "\n", tmp_path / "in", name=name
        ) if rows else (tmp_path / "in" / name).write_text("x,label\n")
    source = open_(tmp_path / "in")
    assert [(part.split, part.records) for part in source.parts] == [("test", 2), ("train", 7)]
    assert column("x", source) == [0, 1, 0, 1, 2, 0, 1, 2, 3]


def test_the_estimated_size_is_near_the_real_one(tmp_path: Path) -> None:
    source = read("n,t\n" + "".join(f"{n},{'x' * (n % 50)}\n" for n in range(30_000)), tmp_path)
    real = sum(len(record) for record in items(source) if isinstance(record, bytes))
    assert source.parts[0].size == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize(
    ("cells", "feature", "values"),
    [
        (["1", "-2", "9223372036854775807"], Tensor("int64"), [1, -2, 2**63 - 1]),
        (["1", "2.5", "1e3"], Tensor("float32"), [1.0, 2.5, 1000.0]),
        (["1", "", "3"], Tensor("float32"), [1.0, math.nan, 3.0]),
        (["1", "NA", "-inf"], Tensor("float32"), [1.0, math.nan, -math.inf]),
        (["02139", "90210"], Text(), [b"02139", b"90210"]),
        (["True", "false"], Tensor("bool"), [1, 0]),
        (["", ""], Text(), [b"", b""]),
        (["99999999999999999999"], Text(), [b"9" * 20]),
        (["a", "1"], Text(), [b"a", b"1"]),
    ],
)
def test_a_type_is_inferred_from_all_cells_of_a_column(
    tmp_path: Path, cells: list[str], feature: Feature, values: list[object]
) -> None:
    source = read("x,y\n" + "".join(f"{cell},z\n" for cell in cells), tmp_path)
    assert source.features["x"] == feature
    assert (
        column("x", source) == pytest.approx(values, nan_ok=True) if feature == Tensor("float32") else values
    )


def test_a_cell_that_is_no_number_among_numbers_is_bad_with_the_way_out(tmp_path: Path) -> None:
    """In more than one of a hundred rows, the column is text."""
    source = read("age\n" + "30\n" * 150 + "old\n", tmp_path)
    (bad,) = (record for record in items(source) if isinstance(record, BadRecord))
    assert str(bad) == "line 152 of 'people.csv' has 'old' in the column 'age', which holds whole numbers"
    assert bad.hint == "Give --type age=text"
    assert read("age\n" + "30\n" * 50 + "old\n", tmp_path).features == {"age": Text()}


def test_a_missing_number_that_a_float_would_not_hold_exactly_is_bad(tmp_path: Path) -> None:
    source = read("id,x\n16777217,a\n,b\n", tmp_path)
    assert (
        only_bad(source) == "line 3 of 'people.csv' has nothing in the column 'id', which holds whole numbers"
    )


def test_given_types_outrank_those_inferred(tmp_path: Path) -> None:
    types = {"age": "float", "height": "text", "member": "label", "label": "bytes"}
    source = read(PEOPLE, tmp_path, Options(types=types))
    assert source.features["age"] == Tensor("float32")
    assert source.features["height"] == Text()
    assert source.features["member"] == Label(("false", "true"))
    assert source.features["label"] == Tensor("string")
    assert column("height", source)[0] == b"1.75"


@pytest.mark.parametrize(
    ("values", "classes", "numbers"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        (["10", "9", "9"], tuple(map(str, range(11))), [10, 9, 9]),
        (["-1", "1", "1"], ("-1", "1"), [0, 1, 1]),
        (["5000", "70", "70"], ("70", "5000"), [1, 0, 0]),
        (["1.0", "0.0", "1"], ("0", "1"), [1, 0, 1]),
        (["big  cat", " big cat", "dog"], ("big cat", "dog"), [0, 0, 1]),
    ],
)
def test_labels_become_classes(
    tmp_path: Path, values: list[str], classes: tuple[str, ...], numbers: list[int]
) -> None:
    source = read(
        "kind,text\n" + "".join(f"{value},x\n" for value in values), tmp_path, Options(label="kind")
    )
    assert source.features["kind"] == Label(classes)
    assert column("kind", source) == numbers == source.labels.tolist()  # type: ignore[union-attr]
    assert source.supervised == ("text", "kind")


@pytest.mark.parametrize("missing", ["", "nan", "NaN", "NULL"])
def test_a_missing_or_nan_label_is_bad(tmp_path: Path, missing: str) -> None:
    source = read(f"text,label\nx,1.0\ny,{missing}\n", tmp_path)
    assert only_bad(source) == "line 3 of 'people.csv' has no label in the column 'label'"


def test_a_column_of_fractions_called_label_is_a_target_and_nan_in_it_is_bad(tmp_path: Path) -> None:
    source = read("x,label\n1,0.5\n2,nan\n3,1\n", tmp_path)
    assert source.features["label"] == Tensor("float32")
    assert source.supervised == ("x", "label")
    assert only_bad(source) == "line 3 of 'people.csv' has 'nan' in the column 'label', which holds numbers"


def test_a_label_that_holds_fractions_is_refused_unless_its_type_is_given(tmp_path: Path) -> None:
    content = "x,price\n1,0.5\n2,1.5\n"
    error = refused(content, tmp_path, Options(label="price"))
    assert "holds fractions, such as 0.5" in error.message
    assert "--label price --type price=float" in error.hint
    source = read(content, tmp_path, Options(label="price", types={"price": "float"}))
    assert source.supervised == ("x", "price")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,2", "line 3 of 'people.csv' has 2 columns, and the header has 3"),
        ("1,2,3,4", "line 3 of 'people.csv' has 4 columns, and the header has 3"),
        ("only", "line 3 of 'people.csv' has 1 column, and the header has 3"),
        ("1,b\xff,3", "line 3 of 'people.csv' is not UTF-8"),
        ('1,b,"c', "line 3 of 'people.csv' opens a quote and does not close it"),
        ("1,b\rc,3", "line 3 of 'people.csv' cannot be read (new-line character seen in unquoted field"),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    assert only_bad(read(f"a,b,c\n1,x,3\n{row}\n".encode("latin-1"), tmp_path)).startswith(message)


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    source = read('a,b\n1,"two\nlines"\n\n2,"three\n\nlines"\nbad\n', tmp_path)
    assert only_bad(source) == "line 8 of 'people.csv' has 1 column, and the header has 2"


def test_bad_rows_are_left_out_on_request(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("x,label\n1,a\n2\n3,\n4,b\n")
    objects = produce(plan(file, name="people", skip_bad=True), skip_bad=True)
    manifest = decode_manifest(objects["manifest.json"])
    assert (manifest.records, manifest.source.skipped) == (2, 2)
    assert [(record.line, record.why) for record in manifest.source.bad] == [
        (3, "has 1 column, and the header has 2"),
        (4, "has no label in the column 'label'"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no header, as it is empty"),
        ("\n\n", "has no header, as it is empty"),
        ("1,2,3\n4,5,6\n", "has no header: its first line is 1, 2, 3"),
        ("a,b,a\n1,2,3\n", "has the column 'a' twice"),
        ("a,b\n", "has no records"),
        ("a,b\r1,2\r3,4", "ends its lines with carriage returns alone"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16 text"),
        (b"a,\xff\n1,2\n", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_table_is_explained(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert message in refused(content, tmp_path).message


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (Options(label="lable"), "has no column 'lable'", "Did you mean label?"),
        (Options(types={"hight": "float"}), "has no column 'hight'", "Did you mean height?"),
        (Options(types={"age": "integer"}), "'integer' is not a type", "int, float"),
        (Options(resize=(8, 8)), "has no images", "--resize"),
    ],
)
def test_an_option_that_does_not_fit_is_explained(
    tmp_path: Path, options: Options, message: str, hint: str
) -> None:
    error = refused(PEOPLE, tmp_path, options)
    assert message in error.message
    assert hint in error.hint


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    read("x,label\n1,a\n", tmp_path / "in", name="train.csv")
    (tmp_path / "in" / "test.csv").write_text("x\n1\n")
    with pytest.raises(
        UsageError, match=r"The header of 'train.csv' is not that of 'test.csv': it has 'label'"
    ):
        open_(tmp_path / "in")


def test_a_file_outside_the_splits_is_named(tmp_path: Path) -> None:
    read(PEOPLE, tmp_path / "in", name="train.csv")
    (tmp_path / "in" / "more.csv").write_text(PEOPLE)
    with pytest.raises(
        UsageError, match=r"'more.csv' is in no split, and 'train.csv' is in the split 'train'"
    ):
        open_(tmp_path / "in")


def test_a_link_that_leaves_the_source_is_bad(tmp_path: Path) -> None:
    read(PEOPLE, tmp_path / "in", name="a.csv")
    (tmp_path / "secret.csv").write_text(PEOPLE)
    (tmp_path / "in" / "b.csv").symlink_to(tmp_path / "secret.csv")
    source = open_(tmp_path / "in")
    assert "'b.csv' is a link that leaves the source" in str(source.bad[0])
    assert len(items(source)) == 3


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'people.csv.gz' is a damaged gzip file"):
        read(gzip.compress(PEOPLE.encode())[:-9], tmp_path, name="people.csv.gz")


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    source = read(PEOPLE, tmp_path)
    file = tmp_path / "people.csv"
    file.write_text(PEOPLE.replace("31", "32"))
    with pytest.raises(UsageError, match=r"'people.csv' has changed"):
        source.check()
    file.write_text(PEOPLE[:40])
    with pytest.raises(UsageError, match=r"'people.csv' has changed"):
        items(source)


def test_a_quote_that_is_never_closed_does_not_take_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.data.files.rows.LONGEST", 2 << 20)
    error = refused('a,b\n1,2\n1,"' + "x,y\n" * 1_500_000, tmp_path)
    assert "Line 3 of 'people.csv' does not end within 2.1 MB" in error.message


def test_the_same_table_gives_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    read(PEOPLE, tmp_path / "one")
    read(PEOPLE, tmp_path / "two")
    first, second = (
        produce(plan(tmp_path / folder / "people.csv", name="people")) for folder in ("one", "two")
    )
    assert first == second


CELLS = st.text(st.sampled_from('ab ,;"\n\r\té\U0001f600'), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
)
def test_what_pythons_csv_module_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str, block: int
) -> None:
    """Whatever is quoted, and wherever a block ends."""
    text = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL  # \r alone is not quoted else
    csv.writer(text, lineterminator=end, quoting=quoting).writerows([("x", "y"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpuctl.data.files.rows.BLOCK", block)
        types = Options(types={"x": "text", "y": "text"})
        source = read(text.getvalue(), tmp_path_factory.mktemp("csv"), types)
        decoded = examples(source)
    assert [(record["x"][0].decode(), record["y"][0].decode()) for record in decoded] == rows  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from('ab,"\n'), max_size=60), st.integers(1, 20))
def test_any_text_is_taken_apart_as_pythons_csv_module_does(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int
) -> None:
    """Also with quotes where they do not belong."""
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpuctl.data.files.rows.BLOCK", block)
        try:
            source = read(
                f"x,y\n{text}", tmp_path_factory.mktemp("csv"), Options(types={"x": "text", "y": "text"})
            )
        except UsageError:
            assert not expected
            return
        records = items(source)
    assert len(records) == len(expected)
    for record, row in zip(records, expected, strict=True):
        if isinstance(record, bytes):
            assert [value[0].decode() for value in decode(record).values()] == row  # type: ignore[union-attr]
        else:
            assert len(row) != 2 or "quote" in record.why
