"""Reads tar archives that anybody may have written, on laptop and host: in one pass and in flat memory.

tarfile of the standard library holds every member, takes headers of any size, follows them by recursion,
looks into them in quadratic time (CVE-2024-6232), and unfolds sparse files. Here is what archives of today
have: ustar, pax and GNU's long names. https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
"""

from __future__ import annotations

from typing import IO, Dict, Iterator, NamedTuple

FILE, FOLDER, LINK, SPARSE, OTHER = "file", "folder", "link", "sparse file", "device"
_KINDS = {
    b"0": FILE, b"\0": FILE, b"7": FILE, b"S": SPARSE, b"1": LINK, b"2": LINK, b"3": OTHER, b"4": OTHER,
    b"5": FOLDER, b"6": OTHER,
}  # fmt: skip
_WITHOUT_CONTENT = frozenset(b"123456")
BLOCK = 512
LONGEST_HEADER = 1 << 20
"""Bytes of the extended headers of one member."""
_PART = 1 << 20
"""Bytes that are passed over at once."""


class TarError(ValueError):
    """The bytes are no such archive; the message says where, and completes a sentence."""


class TooMuchError(TarError):
    """The archive unpacks to more bytes than it may."""


class Member(NamedTuple):
    """What an archive holds under a name."""

    name: str
    """As it is written, but for the slash after a folder; what is no UTF-8 by `surrogateescape`."""
    kind: str
    size: int
    """Bytes of its content; 0 for what has none."""
    begin: int
    """Where its content begins in the archive."""
    mode: int


class TarReader:
    """The members of an archive in order; after each, its content can be read until the next one."""

    def __init__(self, stream: IO[bytes], most: int = (1 << 63) - 1, seeks: bool = False) -> None:
        """Read an unpacked stream from where it is, up to `most` bytes; `seeks` to pass over contents."""
        self._stream = stream
        self._most = most
        self._seeks = seeks
        self._at = 0
        self._rest = 0
        """Bytes of the content that were not read."""
        self._padding = 0

    @property
    def at(self) -> int:
        """Bytes that are behind; after the last member, where the archive ends."""
        return self._at

    def __iter__(self) -> Iterator[Member]:
        """Yield each member; raises TarError for damage and too many bytes, and what the stream raises."""
        while True:
            self._pass_over()
            header = self._block()
            if header is None:
                return
            member = self._member(header)
            self._rest = member.size
            self._padding = -member.size % BLOCK
            if member.begin + member.size > self._most:
                raise self._too_much()
            yield member

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the member's content, none after its end."""
        wanted = self._rest if size < 0 else min(size, self._rest)
        data = self._stream.read(wanted) if wanted else b""
        if wanted and not data:
            raise TarError("unexpected end of data")
        self._rest -= len(data)
        self._at += len(data)
        return data

    def _pass_over(self) -> None:
        """Go to the next header."""
        left, self._rest, self._padding = self._rest + self._padding, 0, 0
        if left and self._seeks:
            self._stream.seek(left - 1, 1)  # the last byte has to be there
            self._at += left - 1
            left = 1
        while left:
            data = self._stream.read(min(left, _PART))
            if not data:
                raise TarError("unexpected end of data")
            left -= len(data)
            self._at += len(data)

    def _take(self, size: int) -> bytes:
        """Return so many bytes; fewer at the end of the archive."""
        data = b""
        while len(data) < size:
            part = self._stream.read(size - len(data))
            if not part:
                break
            data += part
        self._at += len(data)
        if self._at > self._most:
            raise self._too_much()
        return data

    def _block(self) -> bytes | None:
        """Return the next header, None at the end of the archive."""
        start = self._at
        header = self._take(BLOCK)
        if not header and start:
            return None  # some programs write no end
        if 0 < len(header) < BLOCK:
            raise TarError("unexpected end of data")
        if header and not header.strip(b"\0"):
            self._at = start
            return None
        if not header or not _is_header(header):
            raise TarError("there is no header at byte %d" % start)
        return header

    def _member(self, header: bytes) -> Member:
        """Return the member of a header, with what extended headers before it say; the first one counts."""
        said: Dict[str, bytes] = {}
        left = LONGEST_HEADER
        while header[156:157] in (b"x", b"X", b"g", b"L", b"K"):
            size = _number(header[124:136])
            left -= max(size, BLOCK)
            if left < 0:
                raise TarError("it has an extended header of %d bytes" % size)
            data = self._take(size + -size % BLOCK)
            if len(data) < size:
                raise TarError("unexpected end of data")
            self._note(said, header[156:157], data[:size])
            following = self._block()
            if following is None:
                raise TarError("an extended header without a member")
            header = following
        return self._plain(header, said)

    def _note(self, said: Dict[str, bytes], kind: bytes, data: bytes) -> None:
        if kind == b"L":
            said.setdefault("path", data.partition(b"\0")[0])
        elif kind in b"xX":
            for key, value in _records(data):
                said.setdefault(key, value)
        elif kind == b"g" and not {"path", "size"}.isdisjoint(key for key, _ in _records(data)):
            raise TarError("one name or size for all members")

    def _plain(self, header: bytes, said: Dict[str, bytes]) -> Member:
        code = header[156:157]
        kind = _KINDS.get(code, OTHER)
        name = _text(header[:100])
        if header[257:263] == b"ustar\0" and header[345]:
            name = _text(header[345:500]) + b"/" + name
        name = said.get("GNU.sparse.name", said.get("path", name))
        if code == b"\0" and name.endswith(b"/"):
            kind = FOLDER  # as before ustar
        if kind == FOLDER:
            name = name.rstrip(b"/")
        size = _decimal(said["size"]) if "size" in said else _number(header[124:136])
        if (code in _KINDS and code[0] in _WITHOUT_CONTENT) or kind == FOLDER:
            size = 0
        if any(key.startswith("GNU.sparse.") for key in said):
            kind = SPARSE
        if code == b"S" and header[482]:
            self._pass_over_map()
        mode = _number(header[100:108]) & 0o7777
        return Member(name.decode("utf-8", "surrogateescape"), kind, size, self._at, mode)

    def _pass_over_map(self) -> None:
        """Go over the blocks that list the parts of a sparse file."""
        while True:
            block = self._take(BLOCK)
            if len(block) < BLOCK:
                raise TarError("unexpected end of data")
            if not block[504]:
                return

    def _too_much(self) -> TooMuchError:
        return TooMuchError("it unpacks to more than %d bytes" % self._most)


def _is_header(block: bytes) -> bool:
    """Whether the checksum is right; old programs summed signed bytes."""
    rest = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(rest)
    try:
        checksum = _number(block[148:156])
    except TarError:
        return False
    return checksum == unsigned or checksum == unsigned - 256 * sum(byte > 127 for byte in rest)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Return a number in octal digits, or in binary with the first bit set."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = _text(field).strip(b" ")
    if digits.strip(b"01234567"):
        raise TarError("a header with no number where there has to be one")
    return int(digits or b"0", 8)


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 20:
        raise TarError("a header with no number where there has to be one")
    return int(digits)


def _records(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of each record `LENGTH KEY=VALUE` and a line end; raises TarError."""
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 10)
        length = _decimal(data[at:space]) if space > 0 else 0
        key, equals, value = data[space + 1 : at + length].partition(b"=")
        if length < 5 or at + length > len(data) or not equals or value[-1:] != b"\n":
            raise TarError("an extended header with a damaged record")
        yield key.decode("utf-8", "replace"), value[:-1]
        at += length
