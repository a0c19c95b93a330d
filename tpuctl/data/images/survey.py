"""Looks at the header of every image file: what it is, whether it has to change, or why it is bad.

A file's kind takes two bytes, however many files there are. The beginning and the end of a file are read, the
rest only where its header is longer, its format is another than PNG and JPEG, or its end is not that of an
image. Where files do not lie on this disk, each range is a request: the end is then read at the conversion.
"""

from __future__ import annotations

import errno
import zlib
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import Listing
from tpuctl.data.images.header import (
    JPEG_END,
    PNG_END,
    HeadTooShort,
    ImageInfo,
    InvalidImage,
    format_name,
    inspect_head,
    look,
)
from tpuctl.data.images.rule import HINTS, ImageCounts, ImageKind, ImageRule, bad_kind, kind_of
from tpuctl.data.options import BadRecord
from tpuctl.data.source import ScanProgress
from tpuctl.data.trees.tree import LARGEST

MOST_BAD = 10_000
"""Bad files that are remembered by name; the others are only counted."""
_HEADS = (1 << 12, 1 << 18)
"""Bytes read of the beginning of a file, and where its header is longer."""
_TAIL = 64
"""Bytes read of its end: that of a JPEG may be followed by some padding."""
_ENDS = {"jpeg": JPEG_END, "png": PNG_END}
_THREADS = 8
_CHUNK = 256
"""Files that a thread looks at before it reports."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes of a file from a place on; fewer where it ends."""


class _Headers(msgspec.Struct, array_like=True):
    """What a survey has learnt."""

    kinds: list[ImageKind]
    codes: bytes
    bad: list[tuple[int, BadRecord]]


_HEADERS = msgspec.msgpack.Decoder(_Headers)
"""Made here: msgspec ends the process where threads, such as Beam's, make it at the same moment."""


class Survey:
    """The kind of each file of a listing."""

    def __init__(
        self,
        files: Listing,
        progress: ScanProgress = lambda scanned, total: None,
        headers: bytes = b"",
    ) -> None:
        """`headers` are those of another survey of the same files, which then are not looked at again."""
        self._files = files
        self._codes = array("H", bytes(2 * len(files)))
        self._kinds: dict[ImageKind, int] = {}
        self._lock = Lock()
        self._bad: dict[int, BadRecord] = {}
        if not (headers and self._take(headers)):
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="header") as pool:
                for end in pool.map(self._look, range(0, len(files), _CHUNK)):
                    progress(end, len(files))
        self._by_code = list(self._kinds)

    @property
    def headers(self) -> bytes:
        """What was learnt of all files: some bytes for each kind, and two or fewer for each file."""
        known = _Headers(self._by_code, zlib.compress(self._codes.tobytes(), 1), list(self._bad.items()))
        return msgspec.msgpack.encode(known)

    def _take(self, headers: bytes) -> bool:
        """Take over what another survey has learnt; return False if that was of other files."""
        learnt = _HEADERS.decode(headers)
        codes = array("H", zlib.decompress(learnt.codes))
        if len(codes) != len(self._files):
            return False
        self._codes, self._bad = codes, dict(learnt.bad)
        self._kinds = {kind: code for code, kind in enumerate(learnt.kinds)}
        return True

    def kind(self, index: int) -> ImageKind:
        """Return what a file is."""
        return self._by_code[self._codes[index]]

    def indices(self, holds: Callable[[ImageKind], object]) -> NDArray[np.int64]:
        """Return the indices of the files of some kinds."""
        codes = [code for code, kind in enumerate(self._by_code) if holds(kind)]
        return np.flatnonzero(np.isin(self._numbers, codes)).astype(np.int64)

    @property
    def counts(self) -> ImageCounts:
        """How many files there are of each kind."""
        counts = ImageCounts()
        numbers = np.bincount(self._numbers, minlength=len(self._by_code))
        for kind, number in zip(self._by_code, numbers.tolist(), strict=True):
            counts.add(kind, number)
        return counts

    def bad(self, rule: ImageRule) -> list[BadRecord]:
        """Return the first files that are bad by a rule, in their order."""
        by_rule = self.indices(lambda kind: not kind.bad and rule.why_bad(kind))[:MOST_BAD].tolist()
        bad = self._bad | {
            index: BadRecord(self._files.key(index), why, hint=HINTS.get(why, ""))
            for index, why in ((index, rule.why_bad(self.kind(index))) for index in by_rule)
        }
        return [bad[index] for index in sorted(bad)[:MOST_BAD]]

    @property
    def _numbers(self) -> NDArray[np.uint16]:
        return np.frombuffer(self._codes, np.uint16)

    def _look(self, start: int) -> int:
        end = min(start + _CHUNK, len(self._files))
        for index, info in zip(range(start, end), self._infos(start, end), strict=True):
            if isinstance(info, ImageInfo):
                kind = kind_of(info)
            else:
                kind = bad_kind(info)
                self._note(index, BadRecord(self._files.key(index), str(info), hint=info.hint))
            self._codes[index] = self._code(kind)
        return end

    def _infos(self, start: int, end: int) -> Iterator[ImageInfo | InvalidImage]:
        if self._files.tree.local_path(self._files.file(start)) is None:
            heads = self._files.read_heads(np.arange(start, end), _HEADS[0])
            for index, head in zip(range(start, end), heads, strict=True):
                yield self._by_head(index, head)
            return
        for index in range(start, end):
            yield self._by_ranges(index)

    def _by_ranges(self, index: int) -> ImageInfo | InvalidImage:
        file = self._files.file(index)
        try:
            if file.size > LARGEST:
                raise OSError(errno.EFBIG, f"it has {file.size} bytes, and at most {LARGEST} are read")
            ranges = self._files.tree.open(file)
            try:
                return look_at_file(ranges.read, file.size)
            finally:
                ranges.close()
        except (InvalidImage, OSError) as error:
            return error if isinstance(error, InvalidImage) else unreadable_image(error)

    def _by_head(self, index: int, head: bytes | OSError) -> ImageInfo | InvalidImage:
        def read(at: int, size: int) -> bytes:
            return self._files.read(index)[at : at + size]

        try:
            if isinstance(head, OSError):
                raise head
            return look_at_file(read, self._files.file(index).size, head, tail=False)
        except (InvalidImage, OSError) as error:
            return error if isinstance(error, InvalidImage) else unreadable_image(error)

    def _note(self, index: int, record: BadRecord) -> None:
        with self._lock:
            if len(self._bad) < 2 * MOST_BAD:
                self._bad[index] = record

    def _code(self, kind: ImageKind) -> int:
        code = self._kinds.get(kind)
        if code is None:
            with self._lock:
                code = self._kinds.setdefault(kind, len(self._kinds))
        return code


def unreadable_image(error: OSError) -> InvalidImage:
    """Return the error for a file that cannot be read."""
    hint = "" if error.errno == errno.EFBIG else "Check its permissions."
    return InvalidImage(f"cannot be read: {error.strerror}", hint=hint)


def look_at_file(read: Read, size: int, head: bytes = b"", *, tail: bool = True) -> ImageInfo:
    """Return the shape of an image file of `size` bytes by parts of it; raises InvalidImage.

    `head` is its beginning where that was read before. The checksums of a PNG's pixels are not compared, and
    without `tail` its end is not looked at.
    """
    for length in _HEADS:
        head = head if len(head) >= min(length, size) else read(0, length)
        name = format_name(head)
        if name not in _ENDS or len(head) >= size:
            break
        try:
            info = inspect_head(head)
        except HeadTooShort:
            continue
        if not tail or _ENDS[name] in read(size - _TAIL, _TAIL):
            return info
        break
    return look(head if len(head) >= size else read(0, size))
