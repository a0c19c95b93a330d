"""The images of benchmarks/datasets as a dataset of TFDS, and what `tfds build` does with it.

python -m benchmarks.datasets.tfds SOURCE TARGET
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

Examples = Iterator[tuple[str, dict[str, Path | str]]]


class ClassFolders(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """JPEG files in class folders."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, source: Path, **options: object) -> None:
        self.source = source
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        classes = sorted(folder.name for folder in self.source.iterdir())
        features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(names=classes)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager: tfds.download.DownloadManager) -> dict[str, Examples]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Examples:
        for path in sorted(self.source.glob("*/*.jpg")):
            yield path.name, {"image": path, "label": path.parent.name}


def main() -> None:
    """Build; print the seconds that took, imports left out."""
    source, target = map(Path, sys.argv[1:])
    began = time.perf_counter()
    ClassFolders(source=source, data_dir=target).download_and_prepare()
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
