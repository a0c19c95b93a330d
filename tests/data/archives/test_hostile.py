"""What an archive from a stranger may hold: each is named, and nothing leaves the archive."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.archives.test_tree import archive, read
from tests.data.source_trees import items, png
from tpuctl.data.archives import members
from tpuctl.data.options import BadRecord
from tpuctl.data.plan import plan
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import TpuctlError, UsageError

PICTURE = png(100)
NOT_FOLLOWED = ", which is not followed in an archive"
LINK = f"'cat/1.png' is a link{NOT_FOLLOWED}"
UNCLEAR = "has blanks around its name, or line breaks or other control characters"
DAMAGED = "'cat/1.png' cannot be read: it is damaged in the archive"


def tar(path: Path, *others: tarfile.TarInfo, content: bytes = b"") -> Path:
    """Write an archive with a good picture and other members, all with the same content."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        for info in (member("cat/0.png", len(PICTURE)), *others):
            file.addfile(info, io.BytesIO(PICTURE if info.isreg() and not content else content))
    return path


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for field, value in more.items():
        setattr(info, field, value)
    return info


def bad(path: Path) -> list[str]:
    """What is bad in a source: of its listing, and of its records."""
    source = read(path)
    return [str(record) for record in (*source.bad, *items(source)) if isinstance(record, BadRecord)]


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (member("../evil.png", 100), "'../evil.png' has a name that leads out of the archive"),
        (member("cat/../../evil.png", 100), "'cat/../../evil.png' has a name that leads out of the archive"),
        (member("/etc/evil.png", 100), "'/etc/evil.png' has a name that leads out of the archive"),
        (member("C:/evil.png", 100), "'C:/evil.png' has a name that leads out of the archive"),
        (member("cat\\evil.png", 100), r"'cat\evil.png' has a name that leads out of the archive"),
        (member("cat/a\n.png", 100), "'cat/a\n.png' has a name that no file can have"),
        (member("cat/\udcff.png", 100), r"'cat/\udcff.png' has a name that no file can have"),
        (member("cat/1.png", 0, tarfile.SYMTYPE, linkname="/etc/passwd"), LINK),
        (member("cat/1.png", 0, tarfile.LNKTYPE, linkname="cat/0.png"), LINK),
        (member("cat/1.png", 0, tarfile.CHRTYPE), "'cat/1.png' is a device"),
        (member("cat/1.png", 0, tarfile.FIFOTYPE), "'cat/1.png' is a device"),
        (member("cat/0.png", 100), "'cat/0.png' is twice in the archive"),
    ],
)  # fmt: skip
def test_a_member_that_is_no_plain_file_is_named(tmp_path: Path, info: tarfile.TarInfo, why: str) -> None:
    twice = "twice" in why
    more = (member("cat/9.png", 100),) if twice else ()
    assert bad(tar(tmp_path / "pets.tar", *more, info)) == [why]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets.tar"]


def test_a_sparse_member_and_one_that_is_cut_off_are_named(tmp_path: Path) -> None:
    sparse = member("cat/1.png", 100, pax_headers={"GNU.sparse.map": "0,10", "GNU.sparse.size": "4096"})
    assert bad(tar(tmp_path / "pets.tar", sparse)) == ["'cat/1.png' is a sparse file"]
    file = tar(tmp_path / "cut.tar", member("cat/2.png", 5000), content=b"x" * 5000)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(UsageError, match=r"'cut\.tar' is a damaged archive, or none: unexpected end of data"):
        read(file)


def test_hidden_files_and_litter_are_left_out(tmp_path: Path) -> None:
    hidden = [member(name, 100) for name in ("__MACOSX/cat/._0.png", "cat/.DS_Store", ".git/config")]
    assert bad(tar(tmp_path / "pets.tar", *hidden)) == []


def test_a_file_that_is_a_folder_too_is_named(tmp_path: Path) -> None:
    infos = [member("cat/1.png", 100), member("cat/1.png/2.png", 100)]
    assert bad(tar(tmp_path / "pets.tar", *infos)) == ["'cat/1.png' is a file and a folder at once"]


def test_damage_in_the_middle_is_no_end(tmp_path: Path) -> None:
    file = tar(tmp_path / "pets.tar", member("cat/1.png", 100), member("cat/2.png", 100))
    data = bytearray(file.read_bytes())
    data[1024 + 20] ^= 1  # in the header of the second member
    file.write_bytes(data)
    with pytest.raises(UsageError, match="there is no header at byte 1024"):
        read(file)
    two = tmp_path / "two.tar"
    two.write_bytes(tar(tmp_path / "a.tar").read_bytes() + b"x" * (2 << 20))
    with pytest.raises(UsageError, match="bytes follow"):
        read(two)


@pytest.mark.parametrize("name", ["a.tar", "a.zip", "a.tar.gz", "a.tgz"])
@pytest.mark.parametrize("content", [b"", b"x" * 2000, b"\x1f\x8b" + b"x" * 100, b"PK\x05\x06"])
def test_what_is_no_archive_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=rf"'{name}'|a\.tar|holds no files"):
        read(tmp_path / name)


def zipped(path: Path, change: Callable[[bytearray], object] | None = None, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("cat/0.png", PICTURE)
        for name, content in more.items():
            file.writestr(f"cat/{name}.png", content, zipfile.ZIP_DEFLATED)
    if change:
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)
    return path


def directory(data: bytearray, number: int) -> int:
    """Return where an entry of the directory begins."""
    at = -1
    for _ in range(number + 1):
        at = data.index(b"PK\x01\x02", at + 1)
    return at


def encrypted(data: bytearray) -> None:
    data[directory(data, 1) + 8] |= 1


def strange_method(data: bytearray) -> None:
    struct.pack_into("<H", data, directory(data, 1) + 10, 9)


def link(data: bytearray) -> None:
    struct.pack_into("<I", data, directory(data, 1) + 38, 0o120777 << 16)


def other_checksum(data: bytearray) -> None:
    data[directory(data, 1) + 16] ^= 1


def smaller_size(data: bytearray) -> None:
    struct.pack_into("<I", data, directory(data, 1) + 24, 500)


def huge_size(data: bytearray) -> None:
    """Give a member a size of 64 bits, in an extra field of the directory."""
    at, extra = directory(data, 1), struct.pack("<HHQ", 1, 8, 2**64 - 1)
    struct.pack_into("<I", data, at + 24, 2**32 - 1)
    struct.pack_into("<H", data, at + 30, len(extra))
    name = at + 46 + len("cat/1.png")
    data[name:name] = extra
    end = data.index(b"PK\x05\x06")
    (size,) = struct.unpack_from("<I", data, end + 12)
    struct.pack_into("<I", data, end + 12, size + len(extra))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (encrypted, "'cat/1.png' is encrypted"),
        (strange_method, "'cat/1.png' is compressed by a method that is not read, 9"),
        (link, f"'cat/1.png' is a link or a device{NOT_FOLLOWED}"),
        (other_checksum, f"{DAMAGED} (its checksum does not match)"),
        (smaller_size, f"{DAMAGED} (it has 100 bytes, and the archive says 500)"),
        (huge_size, "'cat/1.png' has a size that no file can have"),
    ],
)  # fmt: skip
def test_a_member_of_a_zip_file_that_cannot_be_read_is_named(
    tmp_path: Path, change: Callable[[bytearray], object], why: str
) -> None:
    assert bad(zipped(tmp_path / "pets.zip", change, **{"1": PICTURE})) == [why]


def test_a_member_of_a_zip_file_without_a_name_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as file:
        file.writestr("cat/0.png", PICTURE)
        file.writestr(zipfile.ZipInfo(""), PICTURE)
    assert len(bad(tmp_path / "pets.zip")) == 1


def test_a_zip_bomb_is_named_and_not_unpacked(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "pets.zip", **{"1": bytes(65 << 20)})
    assert bomb.stat().st_size < 1 << 20
    (why,) = bad(bomb)
    assert why.startswith("'cat/1.png' unpacks to ")


def test_a_member_that_says_it_is_empty_is_not_unpacked(tmp_path: Path) -> None:
    def empty(data: bytearray) -> None:
        struct.pack_into("<I", data, directory(data, 1) + 24, 0)

    file = zipped(tmp_path / "pets.zip", empty, **{"1": bytes(64 << 20)})
    tracemalloc.start()
    try:
        assert bad(file) == [f"{DAMAGED} (its checksum does not match)"]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_member_in_thousands_of_folders_is_named(tmp_path: Path) -> None:
    deep = f"{'a/' * 5000}1.png"
    assert bad(tar(tmp_path / "pets.tar", member(deep, 100))) == [
        f"'{deep}' has a name that no file can have"
    ]


def test_a_long_header_of_a_member_is_no_part_of_it(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("cat/1.png")
    info.extra = struct.pack("<HH", 0xD935, 4000) + bytes(4000)  # as zipalign fills pages up
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as file:
        file.writestr(info, PICTURE)
    assert bad(tmp_path / "pets.zip") == []


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    def shared(data: bytearray) -> None:
        struct.pack_into("<I", data, directory(data, 1) + 42, 0)

    with pytest.raises(UsageError, match="its members lie over each other"):
        read(zipped(tmp_path / "pets.zip", shared, **{"1": PICTURE}))


def test_a_compressed_archive_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.data.archives.tree._LEAST", 1 << 20)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as file:
        file.addfile(member("cat/0.png", 4 << 20), io.BytesIO(bytes(4 << 20)))
    with pytest.raises(UsageError, match="unpacks to more than 250 times its size"):
        read(tmp_path / "a.tar.gz")


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST", 2)
    with pytest.raises(UsageError, match="more than 2 members"):
        archive(tar(tmp_path / "a.tar", member("cat/1.png", 100), member("cat/2.png", 100)))


@pytest.mark.parametrize("name", ["pets.tar", "pets.zip", "pets.tar.gz"])
def test_random_damage_ends_in_words(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalTree, "settle", lambda tree, newest: None)  # nothing is written later
    file = tmp_path / name
    if name.endswith("zip"):
        zipped(file, **{"1": PICTURE, "2": PICTURE})
    else:
        with tarfile.open(file, "w:gz" if name.endswith("gz") else "w") as packed:
            for number in range(3):
                packed.addfile(member(f"cat/{number}.png", 100), io.BytesIO(PICTURE))
    whole, generator = file.read_bytes(), random.Random(4)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        file.write_bytes(data[: generator.choice((len(data), generator.randrange(len(data))))])
        try:
            planned = plan(file, name="pets", skip_bad=True)
        except TpuctlError:
            continue
        items(planned.source)
        planned.source.close()


@pytest.mark.parametrize(
    "name", ["3.45.00\u202fPM", "a\u3000b", "\U0001f469\u200d\U0001f4bb", "a\u00adb", "\ue000", "a\u2028b"]
)
def test_odd_names_that_a_disk_takes_are_read_from_archives_too(tmp_path: Path, name: str) -> None:
    """macOS itself calls its screenshots `3.45.00\u202fPM`; a folder may be called so, too."""
    info = member(f"c{name}d/{name}.png", len(PICTURE))
    packed = zipped(tmp_path / "pets.zip")
    with zipfile.ZipFile(packed, "a") as file:
        file.writestr(info.name, PICTURE)
    for path in (tar(tmp_path / "pets.tar", info), packed):
        assert bad(path) == ([f"'c{name}d' {UNCLEAR}"] if "\u2028" in name else [])
        assert len(items(read(path))) == (1 if "\u2028" in name else 2)
