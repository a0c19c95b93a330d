"""Writes a dataset with tensorflow-datasets, converts that and others with tpuctl, reads all; prints JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.data.output.other_readers import compared, counted
from tests.data.source_trees import close_opened, produce
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.plan import plan

OPTIONS = {
    "metadata": Options(types={"tags": "labels"}),
    "tokens": Options(tokens=TokenOptions("wordpiece", 6, vocabulary_size=30)),
    "zoo_keep": Options(channels="keep"),
    "zoo_rgba": Options(channels=4),
}
"""By the name of the source."""


def main(root: Path) -> None:
    write(root / "theirs")
    report = {}
    for source in sorted(root.iterdir()):
        planned = plan(source, name=source.name, shards=1, options=OPTIONS.get(source.name, Options()))
        folder = root.parent / "made" / source.name
        folder.mkdir(parents=True)
        for file, data in produce(planned).items():
            (folder / file).write_bytes(data)
        close_opened()
        report[source.name] = {"kind": planned.source.kind, **read(folder), "read": counted(folder)}
        if source.name.startswith("zoo"):
            report[source.name]["others"] = compared(folder)
    print(json.dumps(report))


def write(folder: Path) -> None:
    """Write a dataset with features that no other source has."""
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "image/filename": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=["cat", "dog"]),
            "boxes": tfds.features.Sequence(tfds.features.BBoxFeature()),
            "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["red", "blue"])),
            "objects": tfds.features.Sequence(
                {"bbox": tfds.features.BBoxFeature(), "label": tfds.features.ClassLabel(names=["ear", "paw"])}
            ),
            "sound": tfds.features.Audio(file_format="wav", shape=(None, 2), sample_rate=8000),
            "track": tfds.features.Sequence(tfds.features.Sequence(np.int64)),
        }
    )
    records = [
        {
            "image": np.full((4, 5 + number, 3), number, np.uint8),
            "image/filename": f"{number}.png",
            "label": number % 2,
            "boxes": [tfds.features.BBox(0.0, 0.0, 0.5, 1.0)] * number,
            "tags": [1, 0][:number],
            "objects": [{"bbox": tfds.features.BBox(0.25, 0.0, 0.5, 1.0), "label": 1}] * number,
            "sound": np.array([[number, -number]] * number).reshape(-1, 2),
            "track": [[1, 2], [3]][:number],
        }
        for number in range(5)
    ]
    folder.mkdir(exist_ok=True)
    identity = tfds.core.dataset_info.DatasetIdentity(
        name="theirs", version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name=""
    )
    info = tfds.core.DatasetInfo(builder=identity, features=features, supervised_keys=("image", "label"))
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=2)
    writer.initialize_splits(["train", "test"])
    writer.add_examples({"train": records[:3], "test": records[3:]})
    writer.close_all()


def read(folder: Path) -> dict[str, Any]:
    """Return what a dataset holds; images as their shape and the sum of their pixels."""
    builder = tfds.builder_from_directory(str(folder))
    features = builder.info.features
    examples = tfds.as_numpy(builder.as_dataset(split="all"))
    supervised = builder.info.supervised_keys is not None
    pairs = builder.as_dataset(split="all", as_supervised=True) if supervised else [()]
    return {
        "types": {name: type(feature).__name__ for name, feature in features.items()},
        "names": {name: names for name, feature in features.items() if (names := names_of(feature))},
        "counts": {name: split.num_examples for name, split in builder.info.splits.items()},
        "records": [{name: plain(value) for name, value in example.items()} for example in examples],
        "supervised": len(next(iter(pairs))),
    }


def names_of(feature: Any) -> list[str] | None:
    """Return the names of the classes of a label, also of that in objects."""
    inner = getattr(feature, "feature", feature)
    label = inner["label"] if isinstance(inner, tfds.features.FeaturesDict) else inner
    return getattr(label, "names", None)


def plain(value: Any) -> Any:
    """Return a value for JSON."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if isinstance(value, np.ndarray) and value.ndim == 3:
        return [*value.shape, int(value.sum())]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(item) for item in value]
    return value.tolist()


main(Path(sys.argv[1]))
