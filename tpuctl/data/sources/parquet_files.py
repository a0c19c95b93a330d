"""The reader of Parquet files: the schema says the types; records are streamed, row group after row group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.record_cache import CachedSource
from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.options import Options
from tpuctl.data.schema.classes import ClassCollector, Classes
from tpuctl.data.schema.features import Label
from tpuctl.data.source import Part, Records, ScanProgress, changed
from tpuctl.data.sources.parquet_columns import arrow_column
from tpuctl.data.tables.columns import Column, Columns, check_options, label_column, without_nan
from tpuctl.data.tables.typed_cells import given_column
from tpuctl.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import pyarrow.parquet

FILES = re.compile(r"\.(parquet|pq)$")
_BUFFER = 1 << 20
_BATCH_BYTES, _MOST_ROWS = 2 << 20, 4096
"""What a batch of rows takes, about, in memory."""
_MEASURED_GROUPS, _MEASURED_ROWS = 16, 200
"""Rows that are encoded to estimate the size of all."""


def read_parquet(root: Path, options: Options, progress: ScanProgress) -> CachedSource:
    """Return the file at `root`, or all Parquet files below it, which have the same schema.

    Raises UsageError, and ConfigError where pyarrow is not installed.
    """
    table = _Table(list_files(root, FILES))
    what = f"'{root.name}'"
    if not sum(table.rows):
        raise UsageError(f"{what} has no records.", hint="Give a source with some.", file=root.name)
    check_options(options, table.names, what)
    target, said = label_column(options, table.names)
    classes = table.classes(target, options, progress, said=said) if target else None
    columns = Columns(table.columns(options, target, classes), target)
    return CachedSource(
        "parquet",
        columns.features,
        columns.supervised,
        table.parts(columns),
        table.files.listing.fingerprint,
        lambda: table.stream(columns),
        table.files.stamp,
        table.files.check,
        labels=classes.labels if classes else None,
        bad=table.files.bad,
    )


class _Table:
    """Files of one schema."""

    def __init__(self, files: SourceFiles) -> None:
        self.files = files
        self._parquet = _library()
        self.rows: list[int] = []
        self._gaps: set[str] = set()
        first = self._open(0)
        self._schema: Any = first.schema_arrow
        self.names: tuple[str, ...] = tuple(self._schema.names)
        if twice := next((name for name in self.names if self.names.count(name) > 1), ""):
            raise UsageError(f"'{files.name(0)}' has the column '{twice}' twice.", hint="Rename one of them.")
        for number in range(len(files)):
            with self._open(number) as file:
                self._note(number, file)

    def columns(self, options: Options, target: str, classes: Classes | None) -> list[Column]:
        """Return the columns with their types, given by the options or the schema."""
        found = []
        for name in self.names:
            if classes and name == target:
                column = Column(name, Label(classes.names), classes.numbers.__getitem__, "classes")
            elif name in options.types:
                column = given_column(name, options.types[name])
            else:
                kind = self._schema.field(name).type
                column = arrow_column(name, kind, name in self._gaps, partial(self._first, name))
            if name == target and not classes:
                column = column._replace(convert=without_nan(column.convert))
            found.append(column)
        return found

    def classes(self, name: str, options: Options, progress: ScanProgress, *, said: bool) -> Classes | None:
        """Return the classes in a column; None where it holds numbers to be learnt."""
        if options.types.get(name, "label") != "label":
            return None
        gathering, done = ClassCollector(name), 0
        for number in range(len(self.files)):
            for batch in self._batches(number, [name]):
                gathering.add(batch.column(0).to_pylist())
                done += batch.num_rows
                progress(done, sum(self.rows))
        classes = gathering.finish()
        if classes.names and not classes.fractions:
            return classes
        if not said:
            return None
        raise UsageError(
            f"The column '{name}' holds {'fractions' if classes.names else 'nothing'}: they are no classes.",
            hint=f"To learn numbers, give its type: --label {name} --type {name}=float.",
        )

    def stream(self, columns: Columns) -> Records:
        """Yield every record."""
        for number in range(len(self.files)):
            row = 0
            for batch in self._batches(number, list(self.names)):
                for cells in _transposed(batch):
                    row += 1
                    example, why, hint = columns.record(cells)
                    yield BadRecord(self.files.name(number), why, row, hint, "row") if why else example
            if row != self.rows[number]:
                raise changed(self.files.name(number), "has changed")

    def parts(self, columns: Columns) -> list[Part]:
        """Return the splits, with sizes estimated from some rows of some row groups."""
        found: dict[str, Part] = {}
        for number in range(len(self.files)):
            before = found.get(self.files.split(number), Part(self.files.split(number), 0, 0))
            found[before.split] = before._replace(records=before.records + self.rows[number])
        mean = float(np.mean(self._sizes(columns) or [0]))
        return [part._replace(size=round(mean * part.records)) for part in found.values()]

    def _sizes(self, columns: Columns) -> list[int]:
        sizes: list[int] = []
        some = np.unique(
            np.linspace(0, len(self.files) - 1, min(_MEASURED_GROUPS, len(self.files))).astype(int)
        )
        for number in some.tolist():
            with self._open(number) as file, self._named(number):
                groups = file.metadata.num_row_groups
                each = min(max(_MEASURED_GROUPS // len(some), 1), groups)
                for group in np.unique(np.linspace(0, groups - 1, each).astype(int)).tolist():
                    batch = next(
                        file.iter_batches(_MEASURED_ROWS, row_groups=[group], columns=list(self.names)), None
                    )
                    records = [columns.record(cells) for cells in _transposed(batch)] if batch else []
                    sizes += [len(one.example) for one in records if not one.why]
        return sizes

    def _batches(self, number: int, names: Sequence[str]) -> Iterator[Any]:
        with self._open(number) as file, self._named(number):
            size = sum(
                file.metadata.row_group(one).total_byte_size for one in range(file.metadata.num_row_groups)
            )
            each = max(size // max(self.rows[number], 1), 1)
            yield from file.iter_batches(min(max(_BATCH_BYTES // each, 16), _MOST_ROWS), columns=names)

    def _first(self, name: str) -> Any:
        """Return the first value in a column that is not null."""
        for number in range(len(self.files)):
            for batch in self._batches(number, [name]):
                for value in batch.column(0).drop_null():
                    return value.as_py()
        return None

    def _note(self, number: int, file: pyarrow.parquet.ParquetFile) -> None:
        """Take the number of rows of a file, and which columns have nulls, from its footer."""
        if not file.schema_arrow.equals(self._schema):
            raise _other_schema(self.files, number, self._schema, file.schema_arrow)
        self.rows.append(file.metadata.num_rows)
        for group in range(file.metadata.num_row_groups):
            for place in range(file.metadata.num_columns):
                chunk = file.metadata.row_group(group).column(place)
                if chunk.is_stats_set and chunk.statistics.null_count:
                    self._gaps.add(chunk.path_in_schema.partition(".")[0])

    def _open(self, number: int) -> pyarrow.parquet.ParquetFile:
        with self._named(number):
            return self._parquet.ParquetFile(self.files.path(number), buffer_size=_BUFFER, pre_buffer=False)

    @contextmanager
    def _named(self, number: int) -> Iterator[None]:
        """Name the file in what the library says of it."""
        import pyarrow  # noqa: PLC0415  only for Parquet

        try:
            yield
        except (pyarrow.ArrowException, OSError) as error:
            self.files.unchanged(number)
            why = str(error).splitlines()[0].rstrip(".")
            raise UsageError(
                f"'{self.files.name(number)}' is not a Parquet file, or a damaged one: {why}.",
                hint="Copy it again.",
                file=self.files.name(number),
            ) from error


def _transposed(batch: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _library() -> Any:
    try:
        import pyarrow.parquet  # noqa: PLC0415  only for Parquet
    except ImportError as error:
        raise ConfigError(
            "Reading Parquet needs pyarrow, which is not installed.",
            hint="Install it: pip install 'tpuctl[parquet]'.",
        ) from error
    # its own allocator keeps what it has been given back: memory would grow with the source
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    return pyarrow.parquet


def _other_schema(files: SourceFiles, number: int, wanted: Any, found: Any) -> UsageError:
    differs = [one for one in wanted if one not in found] or [one for one in found if one not in wanted]
    what = f"'{differs[0].name}' ({differs[0].type})" if differs else "their order"
    return UsageError(
        f"The schema of '{files.name(number)}' is not that of '{files.name(0)}': they differ in {what}.",
        hint="All files of a source have the same columns; give one of them alone.",
        file=files.name(number),
    )
