"""What the data commands print of a dataset, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.data.source_trees import write_image
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.output import format_bytes

Tpuctl = Callable[..., CommandResult]


def table_cells(text: str) -> list[list[str]]:
    """Return the columns of each line."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_every_number_is_that_of_the_dataset(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    """No two are the same."""
    for index in range(9):
        write_image(Path("pictures/cat") / f"{index}.png", shade=index)
        write_image(Path("pictures/dog") / f"{index}.png", shade=10 + index)
    Path("pictures/dog/8.png").write_bytes(b"")
    options = ("--split", "train=13/17,test=4/17", "--shards", "3", "--skip-bad", "--seed", "6")
    uploaded = tpuctl("data", "upload", "pets", "pictures", *options)
    assert uploaded.code == 0, uploaded.err
    described = tpuctl("data", "describe", "pets", "--json").json
    train, test = (described["manifest"]["splits"][name] for name in ("train", "test"))
    size = format_bytes(train["bytes"] + test["bytes"])
    where = "gs://sim-project-tpuctl/datasets/pets/1.0.0/"
    assert table_cells(uploaded.out)[:6] == [
        ["dataset", "pets/1.0.0"],
        ["records", "17"],
        ["classes", "2"],
        ["shards", f"6 ({size})"],
        ["skipped", "1"],
        ["where", where],
    ]
    assert table_cells(tpuctl("data", "describe", "pets").out) == [
        ["dataset", "pets/1.0.0"],
        ["records", "17"],
        ["size", size],
        ["made from", "images, seed 6"],
        ["skipped", "1"],
        ["digest", described["digest"][:12]],
        ["where", where],
        [""],
        ["FIELD", "TYPE"],
        ["image", "png image, 6 × 8 × 3, uint8"],
        ["label", "label, 2 classes: cat, dog"],
        [""],
        ["SPLIT", "RECORDS", "SHARDS", "SIZE"],
        ["train", "13", "3", format_bytes(train["bytes"])],
        ["test", "4", "3", format_bytes(test["bytes"])],
    ]
    assert table_cells(tpuctl("data", "ls").out) == [
        ["NAME", "VERSION", "SPLITS", "RECORDS", "SHARDS", "SIZE"],
        ["pets", "1.0.0", "train, test", "17", "6", size],
    ]
    (listed,) = tpuctl("data", "ls", "--json").json["datasets"]
    assert listed == {
        "name": "pets", "version": "1.0.0", "uri": where, "records": 17,
        "bytes": train["bytes"] + test["bytes"], "shards": 6, "file_format": "tfrecord",
        "splits": {"train": 13, "test": 4},
        "classes": ["cat", "dog"], "skipped": 1, "digest": described["digest"],
    }  # fmt: skip


def test_one_record_is_not_several(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    Path("a.csv").write_text("size,label\n1,x\n")
    Path("b.csv").write_text("size,label\n1,x\n2,x\n")
    for name in ("a", "b"):
        assert tpuctl("data", "upload", name, f"{name}.csv").code == 0
    assert tpuctl("data", "verify", "a").out.startswith("a/1.0.0 is complete: 1 record in 1 shard (")
    assert ["holds", "1 record"] in table_cells(tpuctl("data", "rm", "a").err)
    assert tpuctl("data", "diff", "a", "a").out.endswith(": 1 record is the same.\n")
    assert ["split train", "1 record", "2 records"] in table_cells(tpuctl("data", "diff", "a", "b").out)
