"""Small sources of every format, and their copies in a bucket."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.source_trees import write_image
from tests.data.sources.annotated.test_sounds import WAVE, flac, wav
from tests.data.sources.annotated.test_sounds import write as write_sounds
from tests.data.sources.annotated.test_webdataset import sample
from tests.data.sources.annotated.test_webdataset import shard as write_shard
from tests.data.sources.annotated.trees import write_coco, write_mask
from tests.data.sources.huggingface.test_saved import GOLDEN
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import plan
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame

ROWS = [(f"word {number}", number % 3) for number in range(50)]


def images(root: Path) -> Path:
    """Return class folders below split folders, with litter."""
    for split in ("train", "test"):
        for shade, name in enumerate(("cat", "dog")):
            for index in range(3):
                write_image(root / split / name / f"{index}.png", shade=10 * shade + index)
    (root / "train" / "cat" / ".DS_Store").write_bytes(b"litter")
    return root


def texts(root: Path) -> Path:
    """Return class folders of texts."""
    for name in ("good", "poor"):
        (root / name).mkdir(parents=True)
        for index in range(3):
            (root / name / f"{index}.txt").write_text(f"{name} {index} ü")
    return root


def csv(root: Path) -> Path:
    """Return a table in two files, one of them packed."""
    lines = ["text,label", *(f"{text},{label}" for text, label in ROWS)]
    (root / "train").mkdir(parents=True)
    (root / "train" / "a.csv").write_text("\n".join(lines))
    (root / "train" / "b.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return root


def csv_file(root: Path) -> Path:
    """Return a table in one file."""
    return csv(root) / "train" / "a.csv"


def json_lines(root: Path) -> Path:
    """Return objects in files by split."""
    root.mkdir(parents=True)
    for split in ("train", "test"):
        rows = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
        (root / f"{split}.jsonl").write_text(rows)
    return root


def parquet(root: Path) -> Path:
    """Return a table in two Parquet files of several row groups."""
    root.mkdir(parents=True)
    columns = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}
    for number in range(2):
        pq.write_table(pa.table(columns), root / f"part-{number}.parquet", row_group_size=20)
    return root


def arrays(root: Path) -> Path:
    """Return images and labels in an archive of each kind, and a plain array."""
    root.mkdir(parents=True)
    pixels = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
    for split, save in (("train", np.savez), ("test", np.savez_compressed)):
        save(root / f"{split}.npz", x=pixels, y=np.arange(6) % 2)
    return root


def array(root: Path) -> Path:
    """Return one plain array."""
    root.mkdir(parents=True)
    np.save(root / "points.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    return root / "points.npy"


def idx(root: Path) -> Path:
    """Return MNIST's files, the labels packed."""
    root.mkdir(parents=True)
    pixels = bytes(range(6 * 4))
    (root / "train-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 6, 2, 2) + pixels)
    labels = struct.pack(">4BI", 0, 0, 8, 1, 6) + bytes((0, 1, 0, 1, 0, 1))
    (root / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, mtime=0))
    return root


def tfrecords(root: Path) -> Path:
    """Return two files of examples."""
    root.mkdir(parents=True)
    for number in range(2):
        records = (frame(encode({"text": text, "label": label})) for text, label in ROWS)
        (root / f"pets.tfrecord-0000{number}-of-00002").write_bytes(b"".join(records))
    return root


def tfds(root: Path) -> Path:
    """Return a dataset in the form that TFDS writes, in the folder of its version."""
    folder = root / "1.0.0"
    folder.mkdir(parents=True)
    planned = plan(images(root.with_name(f"{root.name}-images")), name="pets", shards=2)
    results = []
    for shard in planned.shards():
        stream = shard.stream()
        (folder / shard.file).write_bytes(b"".join(stream))
        results.append(stream.result)
    for name, data in planned.finish(results).items():
        if name != "manifest.json":
            (folder / name).write_bytes(data)
    return root


def coco(root: Path) -> Path:
    """Return pictures with their boxes."""
    write_coco(root)
    return root


def masks(root: Path) -> Path:
    """Return pictures with a mask beside each."""
    for number in range(3):
        write_image(root / "images" / f"{number}.png", shade=number)
        write_mask(root / "masks" / f"{number}.png", shade=number)
    return root


def metadata(root: Path) -> Path:
    """Return pictures with a table."""
    for number in range(3):
        write_image(root / f"{number}.png", shade=number)
    rows = (json.dumps({"file_name": f"{number}.png", "text": f"text {number}"}) for number in range(3))
    (root / "metadata.jsonl").write_text("\n".join(rows))
    return root


def webdataset(root: Path) -> Path:
    """Return two shards."""
    for number in range(2):
        write_shard(root / f"train-000{number}.tar", sample("0", 2 * number) | sample("1", 2 * number + 1))
    return root


def saved(root: Path) -> Path:
    """Return a dataset that `datasets` saved."""
    return Path(shutil.copytree(GOLDEN / "saved", root))


def sounds(root: Path) -> Path:
    """Return class folders of sounds."""
    return write_sounds(root, {"no/1.wav": wav(), "yes/2.wav": wav(-WAVE), "yes/3.flac": flac()})


def packed(kind: str, source: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """Return what makes an archive of a source."""

    def make(root: Path) -> Path:
        return Path(shutil.make_archive(str(root.parent / "packed"), kind, source(root)))

    return make


SOURCES: dict[str, Callable[[Path], Path]] = {
    "images": images,
    "text": texts,
    "csv": csv,
    "one CSV file": csv_file,
    "jsonl": json_lines,
    "parquet": parquet,
    "numpy": arrays,
    "one array": array,
    "idx": idx,
    "tfrecord": tfrecords,
    "tfds": tfds,
    "coco": coco,
    "masks": masks,
    "metadata": metadata,
    "webdataset": webdataset,
    "saved": saved,
    "audio": sounds,
    "images in tar": packed("tar", images),
    "images in zip": packed("zip", images),
    "coco in tar.gz": packed("gztar", coco),
    "csv in zip": packed("zip", csv),
}
"""By kind, what makes a source below a folder and returns its path."""


def copy(bucket: Bucket, source: Path, name: str) -> str:
    """Copy a file or a folder into a bucket as gcloud does; return its URI."""
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    for path in files:
        below = f"/{path.relative_to(source).as_posix()}" if source.is_dir() else ""
        bucket.upload(f"{name}{below}", [path.read_bytes()], "application/octet-stream")
    return f"gs://{bucket.name}/{name}"
