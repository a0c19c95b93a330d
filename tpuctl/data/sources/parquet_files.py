"""Reads Parquet files: types from the schema, records streamed by row group.

- Converts the columns of Parquet files: which feature an Arrow type becomes (images too), and its cells.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.files.temp_files import CachedSource
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.classes import ClassCollector, Classes, learn_numbers
from tpuctl.data.schema.features import Tensor
from tpuctl.data.source import Blocks, Part, ScanProgress, changed, evenly_spaced
from tpuctl.data.sources.audio import InvalidSound, SoundRule
from tpuctl.data.sources.folders import ImageField, image_column, image_field, report_of
from tpuctl.data.sources.huggingface.features import (
    class_names,
    declared_column,
    declared_features,
    is_audio,
)
from tpuctl.data.sources.names import PARQUET
from tpuctl.data.sources.registry import batch_rows, cautious_rows
from tpuctl.data.tables.arrow_values import add_classes, parts_of_batch, with_arrays
from tpuctl.data.tables.cells import given_column, infer_column, list_column
from tpuctl.data.tables.columns import (
    Column,
    Columns,
    InvalidValue,
    check_options,
    check_width,
    class_column,
    label_column,
    target_column,
    within_memory,
)
from tpuctl.data.tables.parquet import Footer, checked_footer, read_footer
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import ConfigError, UsageError, cause

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet


_TRIED = 16
"""Values of a column that holds no sounds if none of these is one."""
Content = Callable[[object], bytes]
"""Returns the bytes in a cell; none where it has none."""
_NO_MEDIA = "Its bytes are no pictures, and no sounds in WAV or FLAC: convert them. "
_WHOLE = [Tensor(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def arrow_column(
    name: str, kind: pyarrow.DataType, has_nulls: bool, images: Callable[[Content], Column[object] | None]
) -> Column[object]:
    """Return a column of an Arrow type; raises UsageError for one that a record cannot hold.

    Whole numbers with nulls become floats. `images` returns the column of images or sounds, if half of its
    values are some; it is called where bytes may be: as they are, or in a struct's field `bytes`.
    """
    import pyarrow.types as is_  # noqa: PLC0415  only for Parquet

    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_struct(kind) and any(field.name == "bytes" and is_.is_binary(field.type) for field in kind):
        return images(_bytes_of_struct) or _refuse(name, kind, _NO_MEDIA)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return images(_bytes) or with_arrays(given_column(name, "bytes"), "bytes")
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _lists(name, kind, is_)
    column = _scalars(name, kind, is_) or _refuse(name, kind)
    if has_nulls and column.feature in _WHOLE:
        return with_arrays(given_column(name, "float"), "float")
    return column


def sound_column(
    name: str, values: Iterable[bytes], content: Content, is_declared: bool
) -> Column[object] | None:
    """Return the column of sounds, if at least half of its values are some; raises UsageError otherwise.

    None where the source does not declare any.
    """
    rule, count = SoundRule(), 0
    for count, value in enumerate(values, 1):
        rule.add(value)
        if count == _TRIED and not rule.sounds:
            break
    if not rule.sounds or 2 * rule.sounds < count:
        if not is_declared:
            return None
        raise UsageError(
            f"The column '{name}' has sounds that are not WAV or FLAC, or are not in the file.",
            hint=f"Embed them as WAV, or give the type text: --type {shlex.quote(name)}=text.",
            column=name,
        )
    rule.finish()

    def convert(cell: object) -> bytes:
        try:
            return rule.apply(content(cell))
        except InvalidSound as error:
            raise InvalidValue(str(error)) from error

    def convert_many(cells: pyarrow.Array) -> list[bytes]:
        return within_memory(map(convert, cells.to_pylist()))

    return Column(name, rule.feature, convert, "sounds", convert_many)


def _scalars(name: str, kind: pyarrow.DataType, is_: ModuleType) -> Column[object] | None:
    if is_.is_integer(kind):
        return with_arrays(infer_column(name, [0])._replace(feature=Tensor(str(kind))), "int")
    if is_.is_floating(kind):
        return with_arrays(given_column(name, "float"), "float")
    if is_.is_boolean(kind):
        return with_arrays(given_column(name, "bool"), "bool")
    if is_.is_string(kind) or is_.is_large_string(kind):
        return with_arrays(infer_column(name, [""]), "text")
    return None


def _lists(name: str, kind: pyarrow.DataType, is_: ModuleType) -> Column[object]:
    item = _scalars(name, kind.value_type, is_)
    if item is None or not isinstance(item.feature, Tensor) or item.feature.dtype == "bool":
        if is_.is_string(kind.value_type):
            return list_column(name, Tensor("string", (None,)), "text")
        _refuse(name, kind)
    item_kind = "float" if item.feature.dtype == "float32" else "int"
    if not is_.is_fixed_size_list(kind):
        return list_column(name, Tensor(item.feature.dtype, (None,)), item_kind)
    column = list_column(name, Tensor(item.feature.dtype, (kind.list_size,)), item_kind)

    def convert(cell: object) -> Value:
        if cell is None:
            raise InvalidValue
        return column.convert(cell)

    return column._replace(convert=convert)


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else b""


def _bytes_of_struct(cell: object) -> bytes:
    return _bytes(cell["bytes"]) if isinstance(cell, dict) else b""


def _refuse(name: str, kind: pyarrow.DataType, why: str = "") -> NoReturn:
    raise UsageError(
        f"The column '{name}' holds {kind}, which no record can.",
        hint=f"{why}To have it as text: --type {shlex.quote(name)}=text.",
        column=name,
    )


_BUFFER = 1 << 20
_MOST_COUNTED = 1 << 30
"""Bytes of a source whose images are all counted; of a larger one those of some rows."""
_REQUESTS = 16
"""Columns of a file in a bucket whose pages are looked at at once."""
_MEASURED_GROUPS, _MEASURED_ROWS = 16, 200
"""Rows that are encoded to estimate the size of all."""


def read_parquet(tree: Tree, options: Options, progress: ScanProgress) -> CachedSource:
    """Return the only file of a tree, or all Parquet files below it, which have the same schema.

    Raises UsageError, and ConfigError where pyarrow is not installed.
    """
    return table_source("parquet", ParquetTable(list_files(tree, PARQUET)), tree.name, options, progress)


def table_source(
    kind: str, table: ParquetTable, name: str, options: Options, progress: ScanProgress
) -> CachedSource:
    """Return the source of a table; `name` is that of the source."""
    source = f"'{name}'"
    if not sum(table.rows):
        raise UsageError(f"{source} has no records.", hint="Give a source with some.", file=name)
    check_options(options, table.names, source, images=True)
    target, named_by_user = label_column(options, table.names)
    classes = table.classes(target, options, progress, named_by_user) if target else None
    columns = Columns(table.columns(options, target, classes), target)
    return CachedSource(
        kind=kind,
        origin=table.files,
        features=columns.features,
        supervised=columns.supervised,
        labels=classes.labels if classes else None,
        parts=table.parts(columns),
        stream=partial(table.stream, columns, classes),
        images=report_of(table.images, options, source),
    )


class ParquetTable:
    """Files of one schema; `schema_of`, `count`, `batches` and `samples` are how they are read."""

    format = "a Parquet file"

    def __init__(self, files: SourceFiles) -> None:
        self.files = files
        self._parquet = _library()
        self.rows: list[int] = []
        self.with_nulls: set[str] = set()
        self.images: list[ImageField] = []
        self._read: tuple[int, Footer] | None = None
        self._schema = self.schema_of(0)
        self._declared = declared_features(self._schema)
        with self.named(0):
            self.names: tuple[str, ...] = tuple(self._schema.names)
        check_width(len(self.names), files.name(0))
        if twice := next((name for name, count in Counter(self.names).items() if count > 1), ""):
            raise UsageError(f"'{files.name(0)}' has the column '{twice}' twice.", hint="Rename one of them.")
        for number in range(len(files)):
            if not (schema := self.schema_of(number)).equals(self._schema):
                raise _other_schema(self.files, number, self._schema, schema)
            self.rows.append(self.count(number))

    def schema_of(self, number: int) -> pyarrow.Schema:
        """Return the schema of a file."""
        self._footer(number)  # Arrow ends the process for some footers
        with self._open(number) as file:
            return file.schema_arrow

    def count(self, number: int) -> int:
        """Return the number of rows of a file, and note which columns have nulls."""
        footer = self._footer(number)
        with self._open(number) as file:
            if (file.metadata.num_rows, file.metadata.num_row_groups) != (footer.rows, len(footer.groups)):
                raise self._damaged(number, "its footer says two numbers of rows")
        self.with_nulls |= footer.with_nulls
        return footer.rows

    def _footer(self, number: int) -> Footer:
        """Return the footer, by what the pages say; that of the last file is kept."""
        if self._read is None or self._read[0] != number:
            ranges = self.files.open(number)
            try:
                footer = read_footer(ranges, self.files.listing.file(number).size)
                with ThreadPoolExecutor(_REQUESTS if self.files.tree.is_remote else 1) as pool:
                    self._read = number, checked_footer(ranges, footer, pool.map)
            except ValueError as error:
                raise self._damaged(number, str(error)) from error
            finally:
                ranges.close()
        return self._read[1]

    def columns(self, options: Options, target: str, classes: Classes | None) -> list[Column[object]]:
        """Return the columns with their types, given by the options or the schema."""
        columns: list[Column[object]] = []
        for name in self.names:
            if classes and name == target:
                columns.append(class_column(name, classes))
                continue
            declared = self._declared.get(name)
            if name in options.types:
                column = with_arrays(given_column(name, options.types[name]), options.types[name])
            elif declared and (known := declared_column(name, declared)):
                column = known
            else:
                kind = self._schema.field(name).type
                images = partial(self._images_of, name, options)
                column = arrow_column(name, kind, name in self.with_nulls, images)
            columns.append(target_column(column) if name == target else column)
        return columns

    def classes(
        self, name: str, options: Options, progress: ScanProgress, named_by_user: bool
    ) -> Classes | None:
        """Return the classes in a column; None where it holds numbers to be learnt."""
        if options.types.get(name, "label") != "label":
            return None
        collector, scanned = ClassCollector(name), 0
        for number in range(len(self.files)):
            for batch in self.batches(number, [name]):
                with self.named(number):
                    add_classes(collector, batch.column(0))
                scanned += batch.num_rows
                progress(scanned, sum(self.rows))
        classes = collector.finish()
        if declared := class_names(self._declared.get(name)):
            return classes.called(declared)
        if classes.names and not classes.fractions:
            return classes
        if not named_by_user:
            return None
        raise UsageError(
            f"The column '{name}' holds {'fractions' if classes.names else 'nothing'}: they are no classes.",
            hint=learn_numbers(name),
        )

    def stream(self, columns: Columns[object], classes: Classes | None) -> Blocks:
        """Yield every record, those of a batch together where each is as usual."""
        first = 0
        labels = classes.labels if classes else None
        for number in range(len(self.files)):
            row = 0
            for batch in chain.from_iterable(map(parts_of_batch, self.batches(number, self.names))):
                start, row = row, row + batch.num_rows
                numbers = None if labels is None else labels[first + start : first + row].astype(np.int64)
                with self.named(number):  # texts that are not UTF-8
                    frames = columns.frames(batch.columns, _cells, numbers)
                    yield from (frames,) if frames else self._by_rows(columns, number, start, batch)
            if row != self.rows[number]:
                raise changed(self.files.name(number), "has changed")
            first += row

    def _by_rows(
        self, columns: Columns[object], number: int, row: int, batch: pyarrow.RecordBatch
    ) -> Iterator[bytes | BadRecord]:
        for cells in _transposed(batch):
            row += 1
            example, why, hint = columns.record(cells)
            yield BadRecord(self.files.name(number), why, row, hint, "row") if why else example

    def parts(self, columns: Columns[object]) -> list[Part]:
        """Return the splits, with sizes estimated from some rows of some row groups."""
        records: dict[str, int] = {}
        for number, rows in enumerate(self.rows):
            split = self.files.split(number)
            records[split] = records.get(split, 0) + rows
        sizes = self._sizes(columns)
        mean = sum(sizes) / len(sizes) if sizes else 0.0
        return [Part(split, count, round(mean * count)) for split, count in records.items()]

    def _sizes(self, columns: Columns[object]) -> list[int]:
        """Return the sizes of some examples."""
        sizes: list[int] = []
        for number, batch in self.samples(self.names):
            with self.named(number):
                records = map(columns.record, _transposed(batch))
                sizes += [len(record.example) for record in records if not record.why]
        return sizes

    def samples(self, names: Sequence[str]) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        """Yield some rows of some row groups, which lie evenly in the source, and the file of each."""
        sample = evenly_spaced(len(self.files), _MEASURED_GROUPS).tolist()
        for number in sample:
            with self._open(number) as file, self.named(number):
                footer = self._footer(number)
                groups = evenly_spaced(len(footer.groups), max(_MEASURED_GROUPS // len(sample), 1))
                for group in groups.tolist():
                    rows = min(_MEASURED_ROWS, cautious_rows(footer))
                    for batch in islice(file.iter_batches(rows, row_groups=[group], columns=[*names]), 1):
                        yield number, batch

    def batches(self, number: int, names: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a file in batches that fit in memory, these columns."""
        with self._open(number) as file, self.named(number):
            rows = batch_rows(self._footer(number), partial(self._open, number))
            yield from file.iter_batches(rows, columns=[*names])

    def _images_of(self, name: str, options: Options, content: Content) -> Column[object] | None:
        """Return the column of images or sounds, if at least half of its values are some."""
        all_of_it = self.files.size <= _MOST_COUNTED
        field = image_field(map(content, self._values(name, all_of_it)), options, sampled=not all_of_it)
        if field is None:
            return sound_column(
                name, self._sounds(name, content), content, is_audio(self._declared.get(name))
            )
        self.images.append(field)
        return image_column(name, field, content)

    def _sounds(self, name: str, content: Content) -> Iterator[bytes]:
        return map(content, self._values(name, self.files.size <= _MOST_COUNTED))

    def _values(self, name: str, all_of_it: bool) -> Iterator[object]:
        """Yield the values of a column that are not null: all, or those of some rows."""
        numbers = range(len(self.files))
        every = ((number, batch) for number in numbers for batch in self.batches(number, [name]))
        for number, batch in every if all_of_it else self.samples([name]):
            with self.named(number):
                for value in batch.column(0).drop_null():
                    yield value.as_py()

    def _open(self, number: int, dictionaries: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
        """Open a file; the columns named by `dictionaries` are read as these."""
        with self.named(number):
            return self._parquet.ParquetFile(
                self.files.by_path_or_stream(number),
                buffer_size=_BUFFER,
                pre_buffer=False,
                read_dictionary=[*dictionaries],
            )

    @contextmanager
    def named(self, number: int) -> Iterator[None]:
        """Name the file in the library's errors."""
        import pyarrow  # noqa: PLC0415  only for Parquet

        try:
            yield
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
            raise self._damaged(number, str(error).splitlines()[0].rstrip(".")) from cause(error)

    def _damaged(self, number: int, why: str) -> UsageError:
        self.files.unchanged(number)
        name = self.files.name(number)
        message = f"'{name}' is not {self.format}, or a damaged one: {why}."
        return UsageError(message, hint="Copy it again.", file=name)


def _cells(column: pyarrow.Array) -> list[object]:
    cells: list[object] = column.to_pylist()
    return cells


def _transposed(batch: pyarrow.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _library() -> ModuleType:
    try:
        import pyarrow.parquet  # noqa: PLC0415  only for Parquet
    except ImportError as error:
        raise ConfigError(
            "Reading Parquet needs pyarrow, which is not installed.",
            hint="Install it: pip install pyarrow.",
        ) from error
    # Arrow's own allocator does not give freed memory back: memory would grow with the source
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    parquet: ModuleType = pyarrow.parquet
    return parquet


def _other_schema(
    files: SourceFiles, number: int, expected: pyarrow.Schema, actual: pyarrow.Schema
) -> UsageError:
    differing = [field for field in expected if field not in actual] or [
        field for field in actual if field not in expected
    ]
    difference = f"'{differing[0].name}' ({differing[0].type})" if differing else "their order"
    return UsageError(
        f"The schema of '{files.name(number)}' differs from that of '{files.name(0)}' in {difference}.",
        hint="All files of a source have the same columns; give one of them alone.",
        file=files.name(number),
    )
