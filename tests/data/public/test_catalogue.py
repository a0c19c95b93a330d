"""What the archives of public datasets become, from small ones laid out as those that are published."""

from __future__ import annotations

import importlib.util
import io
import shlex
from pathlib import Path

import pytest
from PIL import Image

from tests.data.public.test_unpacking import tarred, zipped
from tests.data.source_trees import opened, png
from tpuctl.cli.datasets.upload import upload
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.public import PUBLIC, public_set
from tpuctl.data.schema.features import Label
from tpuctl.errors import UsageError


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6)).save(stream, "JPEG")
    return stream.getvalue()


def unpacked_plan(name: str, file: Path, **options: str) -> DatasetPlan:
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
    planned = unpacked_plan("cats_dogs", file, splits="train=0.8,test=0.2")
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
    planned = unpacked_plan("imagenette", tarred(tmp_path / "imagenette2-320.tgz", {**files, **more}))
    assert counts(planned) == {"train": 10, "validation": 10}
    assert list(planned.source.bad) == []
    assert planned.classes == (
        "cassette_player", "chain_saw", "church", "english_springer", "french_horn", "garbage_truck",
        "gas_pump", "golf_ball", "parachute", "tench",
    )  # fmt: skip
    (name,) = {path.parent.name for path in tmp_path.rglob("train/*/n03394916_1.JPEG")}
    assert name == "french_horn"


def test_imdb(tmp_path: Path) -> None:
    files = {
        f"aclImdb/{split}/{kind}/0_9.txt": b"film" for split in ("train", "test") for kind in ("pos", "neg")
    }
    more = {"aclImdb/train/unsup/0_0.txt": b"no label", "aclImdb/imdb.vocab": b"film", "aclImdb/README": b""}
    planned = unpacked_plan("imdb", tarred(tmp_path / "aclImdb_v1.tar.gz", {**files, **more}))
    assert counts(planned) == {"train": 2, "test": 2}
    assert planned.features["label"] == Label(("neg", "pos"))


def installed(package: str, *path: str) -> str:
    """Return a file of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], *path).read_text()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("fashion_mnist", "url_checksums/fashion_mnist.txt"),
        ("cats_dogs", "url_checksums/cats_vs_dogs.txt"),
        ("imagenette", "datasets/imagenette/checksums.tsv"),
        ("imdb", "datasets/imdb_reviews/checksums.tsv"),
    ],
)
def test_addresses_sizes_and_checksums_are_those_of_tfds(name: str, table: str) -> None:
    lines = (line.split("\t") for line in installed("tensorflow_datasets", table).splitlines())
    published = {
        file: (url.replace("http://ai.", "https://ai."), size, sha256) for url, size, sha256, file in lines
    }
    files = PUBLIC[name].forms[0].files
    assert files
    for file in files:
        assert (*file.urls, str(file.size), file.sha256) == published[file.name]


def test_the_address_and_the_checksum_of_mnist_are_those_of_keras() -> None:
    (file,) = PUBLIC["mnist"].forms[0].files
    source = installed("keras", "src", "datasets", "mnist.py")
    folder, _, name = file.urls[0].rpartition("/")
    assert f'"{folder}/"' in source
    assert f'"{file.sha256}"' in source
    assert (name, file.name, file.size) == ("mnist.npz", "mnist.npz", 11_490_434)


def test_what_is_published_nowhere_is_not_downloaded() -> None:
    archive, own = PUBLIC["reuters"].forms
    assert [list(file.urls) for file in own.files] == [[]]
    assert [file.size for file in archive.files] == [0], "it is not known"
    places = [url.rpartition("/") for file in archive.files for url in file.urls]
    assert [name for _, _, name in places] == ["reuters21578.tar.gz"] * 2
    assert [folder.split("/")[2] for folder, _, _ in places] == ["archive.ics.uci.edu", "kdd.ics.uci.edu"]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_options_of_the_upload_are_such(name: str) -> None:
    assert upload.make_context("upload", [name, "folder", *shlex.split(PUBLIC[name].options)])


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no public dataset 'cats'") as caught:
        public_set("cats")
    assert "cats_dogs" in caught.value.hint
