"""The files of objects' bytes: how they are written, copied, found incomplete and discarded."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from tpuctl.sim.gcs.storage.blobs import BLOCK, Blobs, BlobWriter, Content, Database


class Site:
    """A folder of blobs, and the database that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "blobs"
        self.database = Database(folder / "metadata.db")
        self.blobs = Blobs(self.folder, self.database)

    def write(self, *chunks: bytes) -> Content:
        """Write a blob that a part of an upload names."""
        with self.blobs.create() as writer:
            writer.write(chunks)
            content = writer.finish()
            self.name(content.blob)
        return content

    def name(self, blob: str) -> None:
        with self.database.transaction():
            self.database.execute("insert into parts values (?, 1, ?, 0, '', '', '')", (blob, blob))

    def read(self, blob: str) -> bytes:
        with self.blobs.open(blob) as file:
            return file.read()

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.database.close()


def checksums(data: bytes) -> tuple[int, str, str]:
    crc32c = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
    return len(data), crc32c, base64.b64encode(hashlib.md5(data).digest()).decode()


def test_a_blob_has_the_bytes_and_checksums_of_its_chunks(site: Site) -> None:
    content = site.write(b"first, ", b"", b"second")
    assert site.read(content.blob) == b"first, second"
    assert (content.size, content.crc32c, content.md5) == checksums(b"first, second")
    assert content.components is None
    assert (site.folder / content.blob[:2] / content.blob).exists()
    assert site.blobs.size(content.blob) == 13


def test_a_blob_may_have_a_number_of_components(site: Site) -> None:
    with site.blobs.create() as writer:
        writer.write([b"data"])
        assert writer.finish(3).components == 3


def test_a_disk_that_takes_less_than_a_chunk_gets_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.blobs.create() as writer:
        file = writer.file

        class Slow:
            def write(self, data: memoryview) -> int:
                return file.write(data[:3])

        monkeypatch.setattr(writer, "file", Slow())
        writer.write([b"0123456789"])
        monkeypatch.setattr(writer, "file", file)
        assert site.read(writer.blob) == b"0123456789"
        assert writer.finish().size == 10


def test_a_blob_that_nothing_names_is_discarded(site: Site) -> None:
    with site.blobs.create() as writer:
        writer.write([b"lost"])
    assert (site.files, site.blobs.size(writer.blob)) == ([], 0)
    kept = site.write(b"kept")
    site.blobs.discard(kept.blob)
    site.blobs.discard("0" * 32)  # there is none
    assert site.files == [kept.blob]


def test_what_a_killed_process_left_is_deleted_and_nothing_else(site: Site) -> None:
    kept = site.write(b"kept")
    writer = site.blobs.create()
    writer.file.close()
    others = [site.folder / "aa" / "not-a-blob", site.folder / "aa" / ("a" * 31), site.folder / ("b" * 32)]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    site.blobs.delete_orphans()
    assert site.files == sorted([kept.blob, *(path.name for path in others)])


def test_a_blob_goes_on_behind_the_bytes_that_are_known(site: Site) -> None:
    content = site.write(b"0123456789")
    with site.blobs.extend(content.blob, site.blobs.checksums_of(content.blob, 4)) as writer:
        assert site.blobs.size(content.blob) == 4
        writer.write([b"abc"])
        longer = writer.finish()
    assert site.read(content.blob) == b"0123abc"
    assert (longer.size, longer.crc32c, longer.md5) == checksums(b"0123abc")


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_the_checksums_of_the_first_bytes_are_read(site: Site, size: int) -> None:
    data = os.urandom(BLOCK + 2)
    content = site.write(data)
    found = site.blobs.checksums_of(content.blob, size)
    assert (found.size, found.crc32c, found.md5) == checksums(data[:size])


def test_an_open_blob_can_be_read_after_it_was_discarded(site: Site) -> None:
    with site.blobs.create() as writer:
        writer.write([b"data"])
        file = site.blobs.open(writer.blob)
    with file:
        assert file.read() == b"data"


class TestCopy:
    """Bytes of other blobs, in the kernel where that can."""

    def append(self, site: Site, data: bytes, size: int) -> bytes:
        source = site.write(data)
        with site.blobs.create() as writer:
            writer.write([b"before "])
            with site.blobs.open(source.blob) as file:
                writer.append(file, size)
                writer.append(file, 2)
            return site.read(writer.blob)

    @pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP])
    def test_the_first_bytes_of_a_blob_are_appended(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, code: int | None
    ) -> None:
        if code is not None:
            monkeypatch.setattr(os, "copy_file_range", self.failing(code), raising=False)
        data = os.urandom(2 * BLOCK + 10)
        assert self.append(site, data, 2 * BLOCK + 5) == b"before " + data[: 2 * BLOCK + 5] + data[:2]

    def test_a_system_without_such_a_copy_reads_and_writes(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
        assert self.append(site, b"0123456789", 4) == b"before 012301"

    def test_another_error_is_raised(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "copy_file_range", self.failing(errno.ENOSPC), raising=False)
        with pytest.raises(OSError, match="no room"):
            self.append(site, b"0123456789", 4)

    def test_a_blob_that_is_too_short_is_an_error(self, site: Site) -> None:
        with pytest.raises(OSError, match="a blob is shorter than its object") as raised:
            self.append(site, b"0123", 5)
        assert raised.value.errno == errno.EIO

    def failing(self, code: int) -> object:
        def copy(*_: object) -> int:
            raise OSError(code, "no room")

        return copy


@pytest.mark.parametrize("fsync", [False, True])
def test_bytes_are_forced_onto_the_disk_where_they_are_to_survive_a_power_cut(
    site: Site, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Blobs(site.folder, site.database, fsync=fsync).create() as writer:
        number = writer.file.fileno()
        writer.finish()
    assert synced == [number] * fsync
    assert isinstance(writer, BlobWriter)
