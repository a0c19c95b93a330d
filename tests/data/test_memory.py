"""Memory is flat: from listing to the last record a large source takes what a small one takes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import no_progress, png
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
TENTH = 2_400
"""Records of 10 MB; ten times as many have 86 MB more."""
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


def write_pictures(folder: Path, records: int) -> None:
    for number in range(4):
        (folder / f"class{number}").mkdir(parents=True)
    for number, data in enumerate(pictures(records)):
        (folder / f"class{number % 4}" / f"{number}.png").write_bytes(data)


def write_tar(file: Path, records: int) -> None:
    write_members(file, ((f"class{n % 4}/{n}.png", data) for n, data in enumerate(pictures(records))))


def write_webdataset(folder: Path, records: int) -> None:
    folder.mkdir()
    for shard in range(4):
        chosen = range(shard * records // 4, (shard + 1) * records // 4)
        samples = (sample(number) for number in chosen)
        write_members(folder / f"train-{shard}.tar", (member for members in samples for member in members))


def sample(number: int) -> list[tuple[str, bytes]]:
    """Return the members of a sample: the JSON has most of its bytes."""
    content = json.dumps({"text": f"{number:0{TEXT}}"}).encode()
    return [(f"{number}.png", png(100)), (f"{number}.cls", b"1"), (f"{number}.json", content)]


def write_metadata(folder: Path, records: int) -> None:
    folder.mkdir()
    with (folder / "metadata.jsonl").open("w") as table:
        for number in range(records):
            (folder / f"{number}.png").write_bytes(png(100))
            table.write(json.dumps({"file_name": f"{number}.png", "text": f"{number:0{TEXT}}"}) + "\n")


def write_metadata_csv(folder: Path, records: int) -> None:
    folder.mkdir()
    with (folder / "metadata.csv").open("w") as table:
        table.write("file_name,text\n")
        for number in range(records):
            (folder / f"{number}.png").write_bytes(png(100))
            table.write(f"{number}.png,{number:0{TEXT}}x\n")


def write_coco(folder: Path, records: int) -> None:
    (folder / "train").mkdir(parents=True)
    names = [f"{number}.png" for number in range(records)]
    for name, data in zip(names, pictures(records), strict=True):
        (folder / "train" / name).write_bytes(data)
    images = [{"id": n, "file_name": name, "width": 8, "height": 6} for n, name in enumerate(names)]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [1, 1, 2, 3]} for n in range(records)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "train" / "_annotations.coco.json").write_text(json.dumps(content))


def pictures(count: int) -> Iterator[bytes]:
    """Yield different pictures of the bytes of a record."""
    whole = png(TEXT)
    return (whole[:-8] + number.to_bytes(8, "big") for number in range(count))


def write_members(file: Path, members: Iterable[tuple[str, bytes]]) -> None:
    with tarfile.open(file, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "rows.csv": write_csv,
    "rows.jsonl": write_json_lines,
    "rows.parquet": write_parquet,
    "rows.npz": write_npz,
    "rows.tfrecord": write_tfrecords,
    "tokens.csv": write_csv,
}
TENFOLD: dict[str, Callable[[Path, int], None]] = {
    **{
        name: WRITERS[name]
        for name in ("rows.csv", "rows.jsonl", "rows.parquet", "rows.npz", "rows.tfrecord")
    },
    "pictures": write_pictures,
    "pictures.tar": write_tar,
    "webdataset": write_webdataset,
    "metadata": write_metadata,
    "metadata_csv": write_metadata_csv,
    "coco": write_coco,
}
SHARES = {"tokens.csv": 4}
"""By how much its sources are smaller: texts are read twice, and slowly."""


def peak_of_its_own(file: Path) -> int:
    """Return `peak` of a new process: in one that has read before, Arrow's memory is there already."""
    command = [sys.executable, "-m", "tests.data.test_memory", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(file.parent)}
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


@pytest.mark.slow
@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="only Linux reports the peak of a process")
@pytest.mark.parametrize("name", TENFOLD)
def test_ten_times_the_source_takes_no_more_memory(tmp_path: Path, name: str) -> None:
    """But for names, sizes and places of files, some hundred bytes each, and buffers that were not full."""
    grown = []
    for times in (1, 10):
        path = tmp_path / f"{times}" / name
        path.parent.mkdir()
        TENFOLD[name](path, times * TENTH)
        grown.append(peak_of_its_own(path))
    assert grown[1] < grown[0] + 9 * TENTH * TEXT // 2


if __name__ == "__main__":
    print(peak(Path(sys.argv[1])))
