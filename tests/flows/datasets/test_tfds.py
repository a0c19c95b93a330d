"""What tensorflow-datasets itself reads from the bucket, by its gs:// name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from tests.forks.tensorflow_python import report_of
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import plan
from tpuctl.flows.datasets.upload import upload


def test_tfds_reads_what_was_uploaded_from_the_bucket(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    planned = plan(pictures, name="pets", splits="train=3/4,test=1/4", shards=2)
    uri = upload(bucket, planned, lambda progress: None).uri
    environment = json.loads((simulator.folder / "endpoints.json").read_text())["environment"]
    script = Path(__file__).with_name("read_with_tfds.py")
    report = report_of(script, uri, variables=environment)
    assert report["name"] == "pets/1.0.0"
    assert report["shards"] == {"train": [3, 3], "test": [1, 1]}
    assert (report["classes"], report["supervised"]) == (["cat", "dog"], ["image", "label"])
    read = sorted(example for examples in report["splits"].values() for example in examples)
    assert read == sorted(
        [label, [6, 8, 3], int(np.asarray(Image.open(file)).sum())]
        for label, name in enumerate(("cat", "dog"))
        for file in (pictures / name).iterdir()
    )
