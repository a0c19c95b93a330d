"""Public datasets for `tpuctl data fetch`.

- Lists public datasets for `tpuctl data fetch`: URLs, checksums, and how each is unpacked.
- Unpacks chosen members of an archive; refuses members that would leave the folder.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

import numpy as np

from tpuctl.data.order import Permutation
from tpuctl.errors import UsageError, nearest
from tpuctl.host.worker.preparation.tar_files import FILE, FOLDER, TarError, TarReader
from tpuctl.local.confined_folder import UnsafeNameError, local_parts

Unpack = Callable[[Sequence[Path], Path], None]
"""Called with the files and an empty folder, which it fills with a source for `tpuctl data upload`."""

_LITTER = ("Thumbs.db", ".DS_Store", "desktop.ini")
DAMAGED = (zipfile.BadZipFile, TarError, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)
"""Raised when an archive is read that is incomplete, or is none."""
_RATIO, _LEAST = 100, 64 << 20
"""How many times its own size an archive may unpack to, and the bytes that it always may."""
MOST_MEMBERS = 1_000_000
_BLOCK = 1 << 20
_DRIVE = re.compile(r"[A-Za-z]:")


class Budget:
    """Limits how much an archive may unpack to, however small it is itself."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._left = max(_RATIO * file.stat().st_size, _LEAST)
        self._members = MOST_MEMBERS

    def blocks(self, stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
        """Yield the content of a member in pieces; raises UsageError where it is too much in all."""
        self._members -= 1
        while block := stream.read(_BLOCK):
            self._left -= len(block)
            if self._left < 0 or self._members < 0:
                raise UsageError(
                    f"'{self._file.name}' unpacks to more than {_RATIO} times its size, or to more than "
                    f"{MOST_MEMBERS} files.",
                    hint="This is not the archive that was published.",
                    file=str(self._file),
                )
            yield block


class _Member(NamedTuple):
    """A file or link in an archive."""

    name: str
    plain: bool
    """Not a link, nor a device."""
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def copied(files: Sequence[Path], folder: Path) -> None:
    """Copy the files unchanged."""
    for file in files:
        shutil.copyfile(file, folder / file.name)


def unpacked(places: Mapping[str, str]) -> Unpack:
    """Return a way to unpack the members below some folders: `{"PetImages/Cat/": "cat/"}`."""

    def unpack(files: Sequence[Path], folder: Path) -> None:
        for file in files:
            _unpack(file, folder, places)

    return unpack


def _unpack(file: Path, folder: Path, places: Mapping[str, str]) -> None:
    """Raise UsageError for a damaged archive, one without chosen members, a member that would leave."""
    written, space = 0, Budget(file)
    try:
        for member in members(file):
            target = _target(member.name, places)
            if target is None:
                continue
            if not member.plain:
                raise _unsafe(file, member.name, "is a link or a device")
            with member.open() as stream:
                _write(stream, folder / _safe(file, member.name, target), space)
            written += 1
    except DAMAGED as error:
        raise damaged(file, str(error)) from error
    if not written:
        raise UsageError(f"'{file.name}' does not hold {', '.join(places)}.", hint="It is another archive.")


def members(file: Path) -> Iterator[_Member]:
    """Yield the files of a zip or tar archive; raises UsageError for a name that would leave the folder."""
    for member in _of_zip(file) if zipfile.is_zipfile(file) else _of_tar(file):
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name or _DRIVE.match(member.name):
            raise _unsafe(file, member.name, "leads out of the folder")
        yield member


def damaged(file: Path, why: str) -> UsageError:
    """Return the error for an archive that cannot be read to its end."""
    return UsageError(f"'{file.name}' is damaged ({why}).", hint="Fetch it again.", file=str(file))


def _of_zip(file: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith("/"):  # is_dir takes no empty name
                kind = info.external_attr >> 28  # of a Unix mode; 8 is a file, and 0 says nothing
                yield _Member(info.filename, kind in (0, 8), lambda info=info: archive.open(info))  # type: ignore[misc]


def _of_tar(file: Path) -> Iterator[_Member]:
    with file.open("rb") as packed:
        is_packed = packed.read(2) == b"\x1f\x8b"
        packed.seek(0)
        reader = TarReader(cast("IO[bytes]", gzip.GzipFile(fileobj=packed)) if is_packed else packed)
        for member in reader:
            if member.kind != FOLDER:
                yield _Member(
                    member.name, member.kind == FILE, lambda: nullcontext(cast("IO[bytes]", reader))
                )


def _target(name: str, places: Mapping[str, str]) -> str | None:
    if name.rpartition("/")[2] in _LITTER:
        return None
    for prefix, place in places.items():
        if name.removeprefix("./").startswith(prefix):
            return place + name.removeprefix("./").removeprefix(prefix)
    return None


def _safe(file: Path, name: str, target: str) -> PurePosixPath:
    """Return the path of a member below the folder; raises UsageError for one that is not safe there."""
    path = PurePosixPath(target)
    try:
        local_parts(path.as_posix())
    except UnsafeNameError as error:
        raise _unsafe(file, name, str(error)) from error
    return path


def _write(stream: IO[bytes], path: Path, space: Budget) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for block in space.blocks(stream):
            file.write(block)


def _unsafe(file: Path, name: str, why: str) -> UsageError:
    return UsageError(
        f"'{name}' in '{file.name}' {why}: nothing was unpacked.",
        hint="This is not the archive that was published.",
        file=str(file),
        member=name,
    )


# Converts Reuters-21578 to class folders: each story under its first topic, of the most frequent topics.
#
# The format is described in the archive's README.txt (Lewis, 1997): SGML in ISO 8859-1, a thousand stories a
# file, the topics of a story in <TOPICS><D>earn</D><D>acq</D></TOPICS>, its text in <TEXT>, there mostly in
# <BODY>.
TOPICS = 46
"""Classes of the set that Keras has under this name."""
SEED = 113
"""Of the order in which the stories of the archive are dealt to the splits; the one Keras shuffles by."""
_TRAIN = 0.8
_FILE = re.compile(r"(^|/)reut2-\d{3}\.sgm$")
_STORY = re.compile(r"<REUTERS\b(?:(?!<REUTERS\b).)*?</REUTERS>", re.DOTALL)
_TOPIC = re.compile(r"<TOPICS><D>([^<]*)</D>", re.DOTALL)
_TEXT = re.compile(r"<TEXT\b[^<>]*>((?:(?!<TEXT\b).)*?)</TEXT>", re.DOTALL)
_BODY = re.compile(r"<BODY>((?:(?!<BODY>).)*?)</BODY>", re.DOTALL)
_TAG = re.compile(r"</?[A-Z][A-Z-]*(?![\w-])[^<>]*>")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SAFE = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Story(NamedTuple):
    """One story."""

    text: str
    topic: str


def from_archive(files: Sequence[Path], folder: Path) -> None:
    """Unpack `reuters21578.tar.gz`; the stories are drawn, four of five to `train`."""
    (file,) = files
    try:
        stories = frequent(_stories(file), TOPICS)
    except DAMAGED as error:
        raise damaged(file, str(error)) from error
    if not stories:
        raise UsageError(f"'{file.name}' holds no stories.", hint="Give reuters21578.tar.gz.", file=str(file))
    order = Permutation(len(stories), SEED, "reuters")(np.arange(len(stories)))
    write([stories[place] for place in order.tolist()], folder)


def from_json(files: Sequence[Path], folder: Path) -> None:
    """Unpack `[texts, labels, class names]`, gzipped; the first four of five are `train`."""
    (file,) = files
    try:
        with gzip.open(file) as stream:
            texts, labels, names = json.loads(b"".join(Budget(file).blocks(stream)))
        stories = [Story(text, names[label]) for text, label in zip(texts, labels, strict=True)]
        if any(not isinstance(field, str) for story in stories for field in story):
            raise TypeError("texts and class names are strings")
    except (OSError, EOFError, zlib.error, ValueError, TypeError, IndexError, RecursionError) as error:
        raise damaged(file, str(error)) from error
    write(stories, folder)


def parse(sgml: str) -> Iterator[Story]:
    """Yield the stories with a topic, under the first one they have.

    A story without a body, a headline that came in advance, has what stands in its text.
    """
    for story in _STORY.finditer(sgml):
        topic, text = _TOPIC.search(story[0]), _TEXT.search(story[0])
        if topic and text:
            body = _BODY.search(text[1])
            plain = html.unescape(body[1] if body else _TAG.sub("", text[1]))
            yield Story(_CONTROL.sub("", plain), topic[1])


def frequent(stories: Iterable[Story], most: int) -> list[Story]:
    """Return the stories under the most frequent topics; of those as frequent, the first by name."""
    listed = list(stories)
    counts = Counter(story.topic for story in listed)
    topics = set(sorted(counts, key=lambda topic: (-counts[topic], topic))[:most])
    return [story for story in listed if story.topic in topics]


def write(stories: Sequence[Story], folder: Path) -> None:
    """Write each story to a file of its own: `train/earn/00001.txt`; raises UsageError for a wrong topic."""
    training, folders = int(len(stories) * _TRAIN), set[Path]()
    for number, story in enumerate(stories):
        if not _SAFE.fullmatch(story.topic):
            raise UsageError(
                f"'{story.topic}' cannot be the name of a class folder.", hint="This is not Reuters-21578."
            )
        place = folder / ("train" if number < training else "test") / story.topic
        if place not in folders:
            place.mkdir(parents=True)
            folders.add(place)
        (place / f"{number:05d}.txt").write_bytes(story.text.encode())


def _stories(file: Path) -> Iterator[Story]:
    space = Budget(file)
    for member in members(file):
        if member.plain and _FILE.search(member.name):
            with member.open() as stream:
                yield from parse(b"".join(space.blocks(stream)).decode("latin-1"))


class PublicFile(NamedTuple):
    """One file that is published."""

    name: str
    sha256: str
    urls: Sequence[str] = ()
    """The same file in several places; empty if users must provide it."""
    size: int = 0
    """Bytes; 0 where that is not known."""


class Form(NamedTuple):
    """One published form of a dataset: the files that hold all of it, and how they are unpacked."""

    files: Sequence[PublicFile]
    unpack: Unpack


class PublicDataset(NamedTuple):
    """One dataset."""

    description: str
    forms: Sequence[Form]
    """The first is downloaded; a local folder may hold any of them."""
    options: str
    """Of `tpuctl data upload`."""
    licence: str
    source: str
    """Whose it is, to be cited."""


_KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_IMAGENETTE = {
    "n01440764": "tench", "n02102040": "english_springer", "n02979186": "cassette_player",
    "n03000684": "chain_saw", "n03028079": "church", "n03394916": "french_horn",
    "n03417042": "garbage_truck", "n03425413": "gas_pump", "n03445777": "golf_ball",
    "n03888257": "parachute",
}  # fmt: skip
"""Folders, which are WordNet's numbers, and the names that fast.ai gives them."""

PUBLIC: dict[str, PublicDataset] = {
    "mnist": PublicDataset(
        "70,000 handwritten digits, 28 × 28",
        [
            Form(
                [
                    # Keras 3, keras/src/datasets/mnist.py; the size is what Keras shows while it fetches it
                    PublicFile(
                        "mnist.npz",
                        "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
                        [f"{_KERAS}/mnist.npz"],
                        11_490_434,
                    )
                ],
                copied,
            )
        ],
        "",
        "CC BY-SA 3.0",
        "LeCun, Cortes and Burges, The MNIST database of handwritten digits",
    ),
    "fashion_mnist": PublicDataset(
        "70,000 pictures of clothes, 28 × 28, in MNIST's format",
        [
            Form(
                [
                    # tensorflow_datasets 4.9, url_checksums/fashion_mnist.txt
                    PublicFile(name, sha256, [f"{_FASHION}/{name}"], size)
                    for name, size, sha256 in (
                        (
                            "train-images-idx3-ubyte.gz",
                            26_421_880,
                            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                        ),
                        (
                            "train-labels-idx1-ubyte.gz",
                            29_515,
                            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                        ),
                        (
                            "t10k-images-idx3-ubyte.gz",
                            4_422_102,
                            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                        ),
                        (
                            "t10k-labels-idx1-ubyte.gz",
                            5_148,
                            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                        ),
                    )
                ],
                copied,
            )
        ],
        "",
        "MIT",
        "Xiao, Rasul and Vollgraf, Fashion-MNIST (2017); copyright Zalando SE",
    ),
    "reuters": PublicDataset(
        "11,228 newswire stories of 1987 under the 46 most frequent first topics",
        [
            Form(
                [
                    # scikit-learn, examples/applications/plot_out_of_core_classification.py
                    PublicFile(
                        "reuters21578.tar.gz",
                        "3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
                        [
                            "https://archive.ics.uci.edu/ml/machine-learning-databases/reuters21578-mld/"
                            "reuters21578.tar.gz",
                            "https://kdd.ics.uci.edu/databases/reuters21578/reuters21578.tar.gz",
                        ],
                    )
                ],
                from_archive,
            ),
            Form(
                [
                    # published nowhere: [texts, labels, class names] of the same stories in another order;
                    # measured on the file that the figures of jobs/reuters.py were reached with
                    PublicFile(
                        "reuters_text.json.gz",
                        "bed835caae9c659d42725ae23e3c44cbe2c4c93ce7cc6a0a8b7b20c7f03ae39e",
                        size=3_244_784,
                    )
                ],
                from_json,
            ),
        ],
        "--tokens words --vocabulary 30000 --length 300",
        "copyright Reuters Ltd. and Carnegie Group, Inc.; for research only",
        "Lewis, Reuters-21578, Distribution 1.0 (1997)",
    ),
    "cats_dogs": PublicDataset(
        "25,000 photographs of cats and dogs, of many sizes; some files are broken",
        [
            Form(
                [
                    # tensorflow_datasets 4.9, url_checksums/cats_vs_dogs.txt
                    PublicFile(
                        "kagglecatsanddogs_5340.zip",
                        "b7974bd00a84a99921f36ee4403f089853777b5ae8d151c76a86e64900334af9",
                        [
                            "https://download.microsoft.com/download/3/E/1/"
                            "3E1C3F21-ECDB-4869-8368-6DEBA77B919F/kagglecatsanddogs_5340.zip"
                        ],
                        824_887_076,
                    )
                ],
                unpacked({"PetImages/Cat/": "cat/", "PetImages/Dog/": "dog/"}),
            )
        ],
        "--split train=0.8,test=0.2 --skip-bad",
        "Microsoft's own, in the archive",
        "Elson, Douceur, Howell and Saul, Asirra (CCS 2007); Petfinder.com",
    ),
    "imagenette": PublicDataset(
        "13,394 photographs of ten classes of ImageNet, the shorter side 320",
        [
            Form(
                [
                    # tensorflow_datasets 4.9, datasets/imagenette/checksums.tsv
                    PublicFile(
                        "imagenette2-320.tgz",
                        "569b4497c98db6dd29f335d1f109cf315fe127053cedf69010d047f0188e158c",
                        ["https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz"],
                        341_663_724,
                    )
                ],
                unpacked(
                    {
                        f"imagenette2-320/{split}/{number}/": f"{split}/{name}/"
                        for split in ("train", "val")
                        for number, name in _IMAGENETTE.items()
                    }
                ),
            )
        ],
        "",
        "Apache 2.0; the photographs are ImageNet's, for research",
        "Howard, imagenette, github.com/fastai/imagenette",
    ),
    "imdb": PublicDataset(
        "50,000 reviews of films, good and bad",
        [
            Form(
                [
                    # tensorflow_datasets 4.9, its checksums of imdb_reviews
                    PublicFile(
                        "aclImdb_v1.tar.gz",
                        "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                        ["https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"],
                        84_125_825,
                    )
                ],
                unpacked(
                    {
                        f"aclImdb/{folder}/": f"{folder}/"
                        for folder in ("train/pos", "train/neg", "test/pos", "test/neg")
                    }
                ),
            )
        ],
        "--tokens wordpiece --vocabulary 30000 --length 256",
        "none stated: cite it",
        "Maas et al., Learning Word Vectors for Sentiment Analysis (ACL 2011)",
    ),
}
"""Datasets by the name that `tpuctl data upload` gives them. The source of each checksum is above it."""


def public_set(name: str) -> PublicDataset:
    """Return the dataset of this name; raises UsageError with the nearest names."""
    if name not in PUBLIC:
        close = nearest(name, PUBLIC)
        raise UsageError(
            f"tpuctl knows of no public dataset '{name}'.",
            hint=f"Did you mean {close[0]}?" if close else f"One of {', '.join(PUBLIC)}.",
            name=name,
        )
    return PUBLIC[name]
