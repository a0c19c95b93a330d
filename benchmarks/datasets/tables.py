"""Rows of CSV and Parquet files to shards, against another checkout: CPU and wall time, the same bytes.

python -m benchmarks.datasets.tables --against CHECKOUT [--rows N] [--turns N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.datasets import sources
from benchmarks.measure import show

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("convert.py")
Figures = dict[str, object]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--against", type=Path, help="Another checkout; without one, only this is measured.")
    options = parser.parse_args()
    checkouts = {"this": ROOT} | ({"other": options.against} if options.against else {})
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        files = make_sources(Path(name), options.rows)
        runs: list[Figures] = []
        for turn in range(options.turns + 1):
            for file in files:
                of_turn = [
                    {"source": file.name, "of": of, **run(path, file)} for of, path in checkouts.items()
                ]
                runs += of_turn if turn else []  # the first turn fills caches
    rows = [compared(file.name, runs) for file in files]
    lines = [line(row) for row in rows]
    show("tables", {"runs": runs, "figures": rows}, lines, [f"{options.rows} rows, medians"])


def make_sources(folder: Path, rows: int) -> list[Path]:
    """Write the rows of benchmarks/datasets as CSV, as Parquet with dictionaries, and as plain Parquet."""
    table = sources.rows(folder / "rows.csv", rows)
    try:
        import pyarrow.csv as arrow_csv  # noqa: PLC0415  an extra
        import pyarrow.parquet as parquet  # noqa: PLC0415
    except ImportError:
        return [table]
    content = arrow_csv.read_csv(table)
    parquet.write_table(content, folder / "rows.parquet")
    parquet.write_table(content, folder / "plain.parquet", use_dictionary=False, row_group_size=50_000)
    return [table, folder / "rows.parquet", folder / "plain.parquet"]


def run(checkout: Path, file: Path) -> Figures:
    """Convert a file with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(SCRIPT), str(file)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    figures: Figures = json.loads(output)
    return figures


def compared(source: str, runs: list[Figures]) -> Figures:
    """Return the medians of a source, and by how much this is faster."""
    row: Figures = {"source": source}
    for of in ("this", "other"):
        own = [figures for figures in runs if (figures["source"], figures["of"]) == (source, of)]
        for name in ("cpu", "seconds") if own else ():
            row[f"{of} {name}"] = statistics.median(float(str(figures[name])) for figures in own)
    if "other cpu" in row:
        checksums = {str(figures["checksums"]) for figures in runs if figures["source"] == source}
        row["same bytes"] = len(checksums) == 1
        for name in ("cpu", "seconds"):
            row[f"{name} ratio"] = float(str(row[f"other {name}"])) / float(str(row[f"this {name}"]))
    return row


def line(row: Figures) -> str:
    """Return a source as a line of the table."""
    text = f"  {row['source']:<16} {row['this cpu']:6.2f} s CPU {row['this seconds']:6.2f} s wall"
    if "cpu ratio" not in row:
        return text
    same = "the same bytes" if row["same bytes"] else "OTHER BYTES"
    ratios = f"{row['cpu ratio']:.2f} x CPU, {row['seconds ratio']:.2f} x wall (3 at least)"
    return f"{text}; the other takes {ratios}, {same}"


if __name__ == "__main__":
    main()
