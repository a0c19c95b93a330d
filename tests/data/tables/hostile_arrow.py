"""Makes Parquet files of every type of column, with nulls and extremes, from a seed."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.tables.hostile_tables import ODD_TEXTS

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
