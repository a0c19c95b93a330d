"""What the archives of public datasets become, from small ones laid out as those that are published."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from PIL import Image

from tests.data.public.test_unpacking import tarred, zipped
from tests.data.source_trees import opened, png
from tpuctl.cli.datasets.upload import upload
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.public.catalogue import PUBLIC, public_set
from tpuctl.data.schema.features import Label
from tpuctl.errors import UsageError


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6)).save(stream, "JPEG")
    return stream.getvalue()


def unpacked(name: str, file: Path, **options: str) -> DatasetPlan:
    folder = file.parent / name
    folder.mkdir()
    PUBLIC[name].forms[0].unpack([file], folder)
    planned = plan(folder, name=name, **options)
    opened(planned.source)
    return planned


def counts(planned: DatasetPlan) -> dict[str, int]:
    return {split.name: split.records for split in planned.splits}


def test_cats_and_dogs(tmp_path: Path) -> None:
    files = {f"PetImages/{kind}/{n}.jpg": jpeg() for kind in ("Cat", "Dog") for n in range(5)}
    more = {"PetImages/Cat/Thumbs.db": b"litter", "PetImages/Dog/Thumbs.db": b"litter", "readme[1].txt": b"x"}
    file = zipped(tmp_path / "kagglecatsanddogs_5340.zip", {**files, **more})
    planned = unpacked("cats_dogs", file, splits="train=0.8,test=0.2")
    assert counts(planned) == {"train": 8, "test": 2}
    assert (planned.classes, list(planned.source.bad)) == (("cat", "dog"), [])


def test_imagenette(tmp_path: Path) -> None:
    numbers = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079", "n03394916", "n03417042",
               "n03425413", "n03445777", "n03888257")  # fmt: skip
    folder = "imagenette2-320"
    files = {
        f"{folder}/{split}/{number}/{number}_1.JPEG": png(300)
        for split in ("train", "val")
        for number in numbers
    }
    more = {f"{folder}/.DS_Store": b"litter", f"{folder}/noisy_imagenette.csv": b"path,label\n"}
    planned = unpacked("imagenette", tarred(tmp_path / "imagenette2-320.tgz", {**files, **more}))
    assert counts(planned) == {"train": 10, "validation": 10}
    assert (len(planned.classes), planned.classes[-1], list(planned.source.bad)) == (10, "tench", [])


def test_imdb(tmp_path: Path) -> None:
    files = {
        f"aclImdb/{split}/{kind}/0_9.txt": b"film" for split in ("train", "test") for kind in ("pos", "neg")
    }
    more = {"aclImdb/train/unsup/0_0.txt": b"no label", "aclImdb/imdb.vocab": b"film", "aclImdb/README": b""}
    planned = unpacked("imdb", tarred(tmp_path / "aclImdb_v1.tar.gz", {**files, **more}))
    assert counts(planned) == {"train": 2, "test": 2}
    assert planned.features["label"] == Label(("neg", "pos"))


@pytest.mark.parametrize("name", PUBLIC)
def test_the_options_of_the_upload_are_such(name: str) -> None:
    assert upload.make_context("upload", [name, "folder", *shlex.split(PUBLIC[name].options)])


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no public dataset 'cats'") as caught:
        public_set("cats")
    assert "cats_dogs" in caught.value.hint
