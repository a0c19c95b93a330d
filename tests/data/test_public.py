"""Public datasets: archives that others publish, what comes out of them, and the folders made of it."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import shlex
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from PIL import Image

from tests.data.source_trees import opened, png
from tests.hostile.names import NAMES
from tpuctl.cli.datasets.upload import upload
from tpuctl.data import public
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.public import PUBLIC, Story, copied, public_set, unpacked
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


WANTED = {"Pets/Cat/": "cat/", "Pets/Dog/": "dog/"}


def zipped(path: Path, files: dict[str, bytes], *, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def tarred(
    path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname, info.mode = len(data), kind, link, mode
            archive.addfile(info, io.BytesIO(data))
    return path


def below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_the_wanted_members_are_put_where_they_belong(tmp_path: Path, folder: Path, pack) -> None:
    files = {"Pets/Cat/1.jpg": b"cat", "./Pets/Dog/a/2.jpg": b"dog", "Pets/readme.txt": b"", "Other/3": b""}
    file = pack(tmp_path / "archive", {**files, "Pets/Cat/Thumbs.db": b"litter"})
    unpacked(WANTED)([file], folder)
    assert below(folder) == {"cat/1.jpg": b"cat", "dog/a/2.jpg": b"dog"}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "Pets/Cat/../../../evil", "Pets/Cat/..\\..\\evil", "C:/evil"]
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, folder: Path, pack, name: str) -> None:
    with pytest.raises(UsageError, match="leads out of the folder: nothing was unpacked"):
        unpacked(WANTED)([pack(tmp_path / "archive", {name: b"x"})], folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]
    assert below(folder) == {}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    "name", [".git/config", "a/.GIT/config", "a\n.jpg", "tpuctl.toml", "HEAD", "x" * 300]
)
def test_a_name_that_is_not_safe_on_a_disk_is_refused(tmp_path: Path, folder: Path, pack, name: str) -> None:
    with pytest.raises(UsageError, match="nothing was unpacked"):
        unpacked(WANTED)([pack(tmp_path / "archive", {f"Pets/Cat/{name}": b""})], folder)
    assert below(folder) == {}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_no_name_of_the_corpus_leads_out_of_the_folder(tmp_path: Path, folder: Path, pack, name: str) -> None:
    """A member is below the folder under its own name, or nothing is."""
    for member in (name, f"Pets/Cat/{name}"):
        file = pack(tmp_path / "archive", {member: b"x"})
        try:
            unpacked({"Pets/Cat/": "cat/"})([file], folder)
        except UsageError:
            pass
        assert {path.name for path in tmp_path.iterdir()} == {"archive", "out"}
        assert set(below(folder)) <= {PurePosixPath(f"cat/{name}").as_posix()}
    assert not list(Path("/tmp").glob("escaped*")), "where an absolute name leads"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, folder: Path, kind: bytes) -> None:
    file = tarred(tmp_path / "archive", {"Pets/Cat/1.jpg": b""}, kind, link="/etc/passwd")
    with pytest.raises(UsageError, match="is a link or a device"):
        unpacked(WANTED)([file], folder)
    assert below(folder) == {}


def test_a_link_in_a_zip_is_refused(tmp_path: Path, folder: Path) -> None:
    file = zipped(tmp_path / "archive", {"Pets/Cat/1.jpg": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    with pytest.raises(UsageError, match="is a link or a device"):
        unpacked(WANTED)([file], folder)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_file_is_executable(tmp_path: Path, folder: Path, pack) -> None:
    file = pack(tmp_path / "archive", {"Pets/Cat/1.jpg": b"#!/bin/sh"}, mode=stat.S_IFREG | 0o777)
    unpacked(WANTED)([file], folder)
    file.chmod(0o777)
    copied([file], folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert (len(files), [path for path in files if path.stat().st_mode & 0o111]) == (2, [])


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_damaged_archive_and_another_one_are_named(tmp_path: Path, folder: Path, pack) -> None:
    data = pack(
        tmp_path / "archive", {f"Pets/Cat/{n}.jpg": bytes(range(256)) * n for n in range(99)}
    ).read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="'cut' is damaged"):
        unpacked(WANTED)([tmp_path / "cut"], folder)
    with pytest.raises(UsageError, match="'other' does not hold Pets/Cat/, Pets/Dog/"):
        unpacked(WANTED)([pack(tmp_path / "other", {"a": b""})], folder)


def test_files_can_be_taken_as_they_are(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"a")
    copied([tmp_path / "a.npz"], folder)
    assert below(folder) == {"a.npz": b"a"}


class TestBombs:
    @pytest.mark.parametrize("pack", [zipped, tarred])
    def test_an_archive_that_unpacks_to_too_much_is_refused(self, tmp_path: Path, folder: Path, pack) -> None:
        file = pack(tmp_path / "archive", {f"Pets/Cat/{n}.jpg": bytes(20 << 20) for n in range(4)})
        if pack is zipped:  # the helper stores: pack it again
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for number in range(4):
                    archive.writestr(f"Pets/Cat/{number}.jpg", bytes(20 << 20))
        with pytest.raises(UsageError, match="unpacks to more than 100 times its size"):
            unpacked(WANTED)([file], folder)

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_a_header_that_would_fill_the_memory_is_damage(
        self, tmp_path: Path, folder: Path, kind: bytes
    ) -> None:
        info = tarfile.TarInfo("long")
        info.type, info.size = kind, 1 << 32
        (tmp_path / "archive").write_bytes(info.tobuf() + bytes(1 << 20))
        with pytest.raises(UsageError, match="an extended header of 4294967296 bytes"):
            unpacked(WANTED)([tmp_path / "archive"], folder)

    def test_a_long_name_is_no_attack(self, tmp_path: Path, folder: Path) -> None:
        name = "/".join(["Pets/Cat", *["long" * 20] * 4, "1.jpg"])
        unpacked(WANTED)([tarred(tmp_path / "archive", {name: b"cat"})], folder)
        assert list(below(folder).values()) == [b"cat"]


SGML = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="5544" NEWID="1">
<DATE>26-FEB-1987</DATE>
<TOPICS><D>cocoa</D><D>sugar</D></TOPICS>
<PLACES><D>brazil</D></PLACES>
<UNKNOWN>&#5;&#5;&#5;C T</UNKNOWN>
<TEXT>&#2;
<TITLE>BAHIA COCOA REVIEW</TITLE>
<DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>Showers at R&amp;D &lt;COC>
were 5 &lt; 6.
 Reuter
\x1f&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TEST" NEWID="2">
<TOPICS><D>earn</D></TOPICS>
<TEXT TYPE="BRIEF">&#2;
******<TITLE>WHIRLPOOL 1ST QTR SHR 66 CTS
</TITLE>Blah blah blah.
&#3;

</TEXT>
</REUTERS>
<REUTERS TOPICS="NO" NEWID="3">
<TOPICS></TOPICS><TEXT><BODY>no topic</BODY></TEXT></REUTERS>
"""


def test_a_story_is_its_body_or_what_stands_in_its_text() -> None:
    assert list(public.parse(SGML)) == [
        Story("Showers at R&D <COC>\nwere 5 < 6.\n Reuter\n", "cocoa"),
        Story("\n******WHIRLPOOL 1ST QTR SHR 66 CTS\nBlah blah blah.\n\n\n", "earn"),
    ]


def test_the_most_frequent_topics_are_kept_and_ties_go_by_name() -> None:
    stories = [Story(str(number), topic) for number, topic in enumerate("cabcadb")]
    assert [story.topic for story in public.frequent(stories, 2)] == ["a", "b", "a", "b"]


def test_an_archive_becomes_class_folders_in_drawn_splits(tmp_path: Path) -> None:
    stories = "".join(
        f"<REUTERS NEWID={n}><TOPICS><D>{'earn' if n % 3 else 'acq'}</D></TOPICS>"
        f"<TEXT><BODY>story {n} gr\u00fcn</BODY></TEXT></REUTERS>"
        for n in range(50)
    )
    files = {"reut2-000.sgm": stories.encode("latin-1"), "README.txt": b"x", "reut2-001.sgm": SGML.encode()}
    (tmp_path / "out").mkdir()
    public.from_archive([tarred(tmp_path / "reuters.tar.gz", files)], tmp_path / "out")
    planned = plan(tmp_path / "out", name="reuters")
    opened(planned.source)
    assert {split.name: split.records for split in planned.splits} == {"train": 41, "test": 11}
    assert planned.features["label"] == Label(("acq", "cocoa", "earn"))
    files = below(tmp_path / "out")
    assert sorted(text for text in files.values() if b"story" in text) == sorted(
        f"story {n} gr\u00fcn".encode() for n in range(50)
    )
    assert {name.split("/")[1] for name, text in files.items() if b"story 3 " in text} == {"acq"}
    drawn = {int(text.split()[1]) for name, text in files.items() if name[:4] == "test" and b"story" in text}
    assert sorted(drawn) == [2, 3, 7, 15, 23, 24, 25, 31, 37, 44], "in every version, and not in order"
    again = tmp_path / "again"
    again.mkdir()
    public.from_archive([tmp_path / "reuters.tar.gz"], again)
    assert below(again) == files


def test_texts_in_json_are_dealt_in_their_order(tmp_path: Path) -> None:
    content = [[f"text {n}\r\n" for n in range(10)], [n % 2 for n in range(10)], ["earn", "money-fx"]]
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (tmp_path / "out").mkdir()
    public.from_json([tmp_path / "a.json.gz"], tmp_path / "out")
    files = below(tmp_path / "out")
    assert files["train/earn/00000.txt"] == b"text 0\r\n"
    assert [name for name in files if name.startswith("test")] == [
        "test/earn/00008.txt",
        "test/money-fx/00009.txt",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([["a"], [0], ["../out"]], "'../out' cannot be the name of a class folder"),
        ([["a"], [7], ["earn"]], "is damaged"),
        ([["a", "b"], [0], ["earn"]], "is damaged"),
        ([[1], [0], ["earn"]], "is damaged"),
        ({}, "is damaged"),
    ],
)
def test_json_of_another_shape_is_refused(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=message):
        public.from_json([tmp_path / "a.json.gz"], tmp_path / "out")


def test_a_damaged_archive_and_one_without_stories_are_named(tmp_path: Path) -> None:
    file = tarred(tmp_path / "reuters.tar.gz", {"README.txt": b"x"})
    with pytest.raises(UsageError, match=r"'reuters.tar.gz' holds no stories"):
        public.from_archive([file], tmp_path)
    file.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"'reuters.tar.gz' is damaged"):
        public.from_archive([file], tmp_path)
