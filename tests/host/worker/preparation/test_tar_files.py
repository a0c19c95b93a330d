"""Archives from strangers: what tarfile reads is read the same, and what would fill the memory is refused."""

from __future__ import annotations

import io
import random
import tarfile
import tracemalloc
from collections.abc import Iterator

import pytest

from tpuctl.host.worker.preparation.tar_files import (
    FILE,
    FOLDER,
    LINK,
    LONGEST_HEADER,
    OTHER,
    SPARSE,
    TarError,
    TarReader,
    TooMuchError,
)

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "GNU": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
KINDS = {
    tarfile.REGTYPE: FILE, tarfile.AREGTYPE: FILE, tarfile.CONTTYPE: FILE, tarfile.DIRTYPE: FOLDER,
    tarfile.SYMTYPE: LINK, tarfile.LNKTYPE: LINK, tarfile.CHRTYPE: OTHER, tarfile.FIFOTYPE: OTHER,
}  # fmt: skip
NAMES = ("a", "folder/" * 20 + "file", "x" * 98, "größe/猫", "\udcff", "a b\n")


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    for field, value in more.items():
        setattr(info, field, value)
    return info


def packed(*members: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return an archive whose files are filled by their numbers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for number, info in enumerate(members):
            archive.addfile(info, io.BytesIO(bytes([number]) * info.size))
    return buffer.getvalue()


def raw(name: str, kind: bytes, content: bytes) -> bytes:
    """Return one header and its content, whatever they are."""
    return member(name, kind, len(content)).tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def by_tarfile(data: bytes) -> Iterator[tuple[object, ...]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            size = info.size if info.isreg() else 0
            yield info.name, KINDS[info.type], size, info.offset_data, info.mode, content and content.read()


def by_reader(data: bytes, **options: bool) -> Iterator[tuple[object, ...]]:
    reader = TarReader(io.BytesIO(data), **options)
    for each in reader:
        yield *each, reader.read() if each.kind == FILE else None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seeks", [False, True])
def test_archives_are_read_as_tarfile_reads_them(form: str, seeks: bool) -> None:
    generator = random.Random(form)
    members = [
        member(name, kind, generator.choice((0, 1, 511, 512, 513, 5000)) if KINDS[kind] == FILE else 0,
               mode=generator.choice((0o644, 0o4755)), linkname="target" * generator.choice((1, 40)))
        for name in NAMES
        for kind in KINDS
        if form != "ustar" or len(name) < 120
    ]  # fmt: skip
    if form == "ustar":
        for info in members:
            info.linkname = info.linkname[:90]
    data = packed(*members, form=FORMATS[form])
    assert list(by_reader(data, seeks=seeks)) == list(by_tarfile(data))


def test_contents_that_are_not_read_are_passed_over() -> None:
    data = packed(member("a", size=5000), member("b", size=3), member("c", size=2_000_000))
    for seeks in (False, True):
        assert [each.name for each in TarReader(io.BytesIO(data), seeks=seeks)] == ["a", "b", "c"]
    reader, parts = TarReader(io.BytesIO(data)), []
    for each in reader:
        parts.append((each.name, reader.read(2), reader.read(0)))
    assert parts == [("a", b"\0\0", b""), ("b", b"\1\1", b""), ("c", b"\2\2", b"")]
    assert reader.read() == b""


def test_an_archive_ends_by_zeros_or_where_there_is_nothing_more() -> None:
    data = packed(member("a", size=3))
    reader = TarReader(io.BytesIO(data))
    assert len(list(reader)) == 1
    assert reader.at == 1024
    assert len(list(TarReader(io.BytesIO(data[:1024])))) == 1


def sparse() -> bytes:
    """Return GNU's older sparse file, whose list of parts goes on in a block of its own."""
    header = bytearray(member("s", tarfile.GNUTYPE_SPARSE, 3).tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + b"abc" + bytes(509) + packed(member("a"))


def test_sparse_files_are_told_and_not_unfolded() -> None:
    assert [(each.name, each.kind) for each in TarReader(io.BytesIO(sparse()))] == [
        ("s", SPARSE),
        ("a", FILE),
    ]
    map_of_pax = packed(
        member("s", size=3, pax_headers={"GNU.sparse.map": "0,3", "GNU.sparse.size": "9" * 9})
    )
    assert [(each.kind, each.size) for each in TarReader(io.BytesIO(map_of_pax))] == [(SPARSE, 3)]


HEADERS = {
    "a long name": raw("x", tarfile.GNUTYPE_LONGNAME, b"n" * (LONGEST_HEADER + 1)),
    "many headers of one member": raw("x", tarfile.XHDTYPE, b"") * (LONGEST_HEADER // 512 + 1),
    "a number of a million digits": raw("x", tarfile.XHDTYPE, b"1" * (LONGEST_HEADER - 1024)),
    "a record that is longer than its header": raw("x", tarfile.XHDTYPE, b"99 path=a\n"),
    "a record of no length": raw("x", tarfile.XHDTYPE, b"0 path=a\n"),
    "a record without a value": raw("x", tarfile.XHDTYPE, b"7 path\n"),
    "a name for all": raw("x", tarfile.XGLTYPE, b"9 path=a\n"),
    "a size of no digits": raw("x", tarfile.XHDTYPE, b"11 size=-1\n"),
    "nothing after it": raw("x", tarfile.XHDTYPE, b"9 path=a\n") + bytes(1024),
}


@pytest.mark.parametrize("case", HEADERS)
def test_an_extended_header_that_no_program_writes_is_damage(case: str) -> None:
    with pytest.raises(TarError):
        list(TarReader(io.BytesIO(HEADERS[case] + packed(member("a")))))


def test_no_header_fills_the_memory() -> None:
    class Zeros(io.RawIOBase):
        """A header of a terabyte, and what it says."""

        def __init__(self) -> None:
            self._header = member("x", tarfile.XHDTYPE, 1 << 40).tobuf(tarfile.GNU_FORMAT)

        def read(self, size: int = -1, /) -> bytes:
            head, self._header = self._header[:size], self._header[size:]
            return head or bytes(size)

    tracemalloc.start()
    try:
        with pytest.raises(TarError, match="an extended header of 1099511627776 bytes"):
            list(TarReader(Zeros()))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < LONGEST_HEADER
    finally:
        tracemalloc.stop()


def test_what_unpacks_to_more_than_it_may_is_refused_before_it_is_read() -> None:
    data = packed(member("a", size=512), member("b", size=512))
    assert len(list(TarReader(io.BytesIO(data), most=5 * 512))) == 2
    with pytest.raises(TooMuchError):
        list(TarReader(io.BytesIO(data), most=4 * 512 - 1))
    huge = member("a", size=1 << 50).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(TooMuchError):
        next(iter(TarReader(io.BytesIO(huge), most=1 << 20)))


def test_damage_ends_in_one_error() -> None:
    whole, generator = packed(member("a", size=600), member("größe" * 40, size=9)), random.Random(1)
    for cut in (1, 511, 513, 1000, 1500):
        with pytest.raises(TarError, match="unexpected end of data"):
            list(by_reader(whole[:cut]))
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            list(by_reader(bytes(data)))
        except TarError:
            pass
