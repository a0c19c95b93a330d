"""Memory is flat: from listing to the last record a large source takes what a small one takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import no_progress
from tests.paths import ROOT
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.plan import plan
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame

RESET = Path("/proc/self/clear_refs")
SMALL, LARGE = 8_000, 24_000
TEXT = 4_000
"""Bytes of a record: the large source has 96 MB, 64 MB more than the small one."""
MORE = 48 << 20
"""Bytes that the large one may take more: three quarters of what it holds more."""


def write_csv(file: Path, rows: int) -> None:
    file.write_text("n,text,label\n" + "".join(f"{n},{n:0{TEXT}},{n % 3}\n" for n in range(rows)))


def write_json_lines(file: Path, rows: int) -> None:
    lines = (json.dumps({"n": n, "text": f"{n:0{TEXT}}", "label": n % 3}) for n in range(rows))
    file.write_text("\n".join(lines))


def write_parquet(file: Path, rows: int) -> None:
    table = pa.table({"text": [f"{n:0{TEXT}}" for n in range(rows)], "label": [n % 3 for n in range(rows)]})
    pq.write_table(table, file, row_group_size=500, use_dictionary=False, compression="none")


def write_npz(file: Path, rows: int) -> None:
    np.savez_compressed(file, x=np.zeros((rows, TEXT), np.int8), y=np.arange(rows) % 3)


def write_tfrecords(file: Path, rows: int) -> None:
    records = (frame(encode({"n": n, "text": f"{n:0{TEXT}}", "label": n % 3})) for n in range(rows))
    file.write_bytes(b"".join(records))


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "rows.csv": write_csv,
    "rows.jsonl": write_json_lines,
    "rows.parquet": write_parquet,
    "rows.npz": write_npz,
    "rows.tfrecord": write_tfrecords,
    "tokens.csv": write_csv,
}
SHARES = {"tokens.csv": 4}
"""By how much its sources are smaller: texts are read twice, and slowly."""


def peak_of_its_own(file: Path) -> int:
    """Return `peak` of a new process: in one that has read before, Arrow's memory is there already."""
    command = [sys.executable, "-m", "tests.data.test_memory", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def peak(file: Path) -> int:
    """Return by how many bytes the process grew at most, while it read a source in a shuffled order."""
    RESET.write_text("5")
    before = _kilobytes("VmRSS")
    source = opened(file)
    count = sum(part.records for part in source.parts)
    for indices in np.array_split(np.random.default_rng(0).permutation(count), 8):
        for _record in source.read(indices, Observations()):
            pass
    source.close()
    return (_kilobytes("VmHWM") - before) << 10


def opened(file: Path) -> Source:
    """Return the source in a file; of one called tokens, with ids for its text."""
    if file.stem != "tokens":
        return open_source(file, None, Options(), no_progress)
    options = Options(tokens=TokenOptions("wordpiece", 64, vocabulary_size=1000))
    return plan(file, name="tokens", options=options).source


def _kilobytes(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="only Linux reports the peak of a process")
@pytest.mark.parametrize("name", WRITERS)
def test_a_large_source_takes_no_more_memory_than_a_small_one(tmp_path: Path, name: str) -> None:
    grown, share = [], SHARES.get(name, 1)
    for records in (SMALL, LARGE):
        WRITERS[name](tmp_path / name, records // share)
        grown.append(peak_of_its_own(tmp_path / name))
    assert grown[1] < grown[0] + MORE // share


if __name__ == "__main__":
    print(peak(Path(sys.argv[1])))
