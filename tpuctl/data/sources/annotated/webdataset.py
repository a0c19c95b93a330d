"""Reads WebDataset: tar shards whose members of the same name are a sample, `0001.jpg` and `0001.cls`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.files.source_files import SourceFiles, every_file, list_files, split_of
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.source import ScanProgress
from tpuctl.data.sources.annotated.fields import unreadable_file
from tpuctl.data.sources.annotated.records import AnnotatedSource, Listed, ListedRecord, media_kind
from tpuctl.data.sources.names import JSON, NUMBERS, TAR_SHARDS, TEXTS, ending, is_media, is_value, sample_key
from tpuctl.data.trees.tree import Entry, ListedFile, Ranges, Tree
from tpuctl.errors import UsageError

_EVERY = re.compile(".")
_MOST_AT_ONCE, _LARGEST_BATCH = 1024, 8 << 20
"""Samples whose small members are held at once, and bytes of these."""

_Sample = tuple[str, dict[str, int]]
"""Key of a sample, and its members: what follows the key in their names, and their numbers."""


def read_webdataset(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the samples of all shards, or of one archive; raises UsageError."""
    files = _members(tree, progress)
    texts, total = _texts(files)
    with closing(Listed("webdataset", files, texts)) as listed:
        for samples in _batches(_samples(files), files):
            members = (number for _, members in samples for number in members.values())
            numbers = [number for number in members if not is_media(files.name(number))]
            read = files.listing.read_each(np.array(numbers, np.int64))
            contents = dict(zip(numbers, read, strict=True))
            for key, sample in samples:
                _add(listed, key, sample, contents)
                progress(len(listed), total)
        return listed.source(options, progress)


def _members(tree: Tree, progress: ScanProgress) -> SourceFiles:
    plain = every_file(tree, _EVERY)
    if isinstance(tree, ArchiveTree) or not any(
        TAR_SHARDS.search(plain.name(number).lower()) for number in range(len(plain))
    ):
        return plain
    return every_file(JoinedTree.of(list_files(tree, TAR_SHARDS), progress), _EVERY)


def _texts(files: SourceFiles) -> tuple[array[int], int]:
    """Return the members with a text, and the number of samples; raises UsageError for others."""
    texts, total, last = array("q"), 0, ""
    for number in range(len(files)):
        path = files.name(number)
        if not (is_media(path) or is_value(path)):
            raise UsageError(
                f"'{path}' is a member of a kind that is not read.",
                hint=f"Read are pictures, sounds, and {', '.join(sorted(_READERS))}.",
                file=path,
            )
        if not is_media(path):
            texts.append(number)
        total, last = total + (sample_key(path) != last), sample_key(path)
    if len(texts) == len(files):
        raise UsageError(
            f"The samples of '{files.tree.name}' have no pictures and no sounds.",
            hint="Make JSON Lines of them, one sample a line.",
        )
    return texts, total


def _samples(files: SourceFiles) -> Iterator[_Sample]:
    """Yield each sample: members with the same key follow one another in the order of names."""
    numbers = range(len(files))
    for key, group in groupby(numbers, key=lambda number: sample_key(files.name(number))):
        yield key, {files.name(number)[len(key) + 1 :]: number for number in group}


def _batches(samples: Iterable[_Sample], files: SourceFiles) -> Iterator[list[_Sample]]:
    """Yield samples together whose small members are read at once."""
    batch: list[_Sample] = []
    size = 0
    for sample in samples:
        batch.append(sample)
        numbers = (number for number in sample[1].values() if not is_media(files.name(number)))
        size += sum(files.listing.file(number).size for number in numbers)
        if len(batch) >= _MOST_AT_ONCE or size > _LARGEST_BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _add(listed: Listed, key: str, members: dict[str, int], contents: dict[int, bytes | OSError]) -> None:
    files: dict[str, int] = {}
    row: dict[str, object] = {}
    for name, number in sorted(members.items(), key=lambda member: ending(member[0]) == "json"):
        path = listed.files.name(number)
        if is_media(path):
            field = name.rpartition(".")[0] or media_kind(path)[0]
            if field in files:
                first = listed.files.name(files[field])
                listed.bad.append(BadRecord(path, f"is of the field '{field}', as '{first}' is"))
                return
            files[field] = number
            continue
        data = contents[number]
        if isinstance(data, OSError):
            listed.bad.append(unreadable_file(path, data))
            return
        try:
            value = _READERS[ending(path)](data)
        except (ValueError, RecursionError) as error:
            listed.bad.append(BadRecord(path, f"cannot be read: {error or 'it is nested too deeply'}"))
            return
        if isinstance(value, dict):
            row |= {
                f"json/{item}" if item in row or item in files else item: cell for item, cell in value.items()
            }
        else:
            row[name.rpartition(".")[0] or _NAMES.get(ending(path), name)] = value
    splits = filter(None, map(split_of, reversed(key.split("/")[:-1])))
    listed.add(ListedRecord(next(splits, ""), files, row, BadRecord(key, "")))


def _number(data: bytes) -> int:
    try:
        return int(data.replace(b"_", b"x"))  # Python alone reads 1_0
    except ValueError:
        raise ValueError(f"'{data[:20].decode(errors='replace')}' is no whole number") from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _json(data: bytes) -> object:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


_READERS: dict[str, Callable[[bytes], object]] = {
    **dict.fromkeys(NUMBERS, _number),
    **dict.fromkeys(TEXTS, _text),
    JSON: _json,
}
"""Ending of a member's name -> its reader."""
_NAMES = {"cls": "label", "txt": "text", "transcript": "text"}
"""Ending -> name of the field, where it is another."""


# Reads several archives as one tree: each is a folder of the name that it has.


class JoinedTree:
    """The files of archives that lie in another tree, below the paths of the archives."""

    only = ""

    def __init__(self, outer: Tree, listed: SourceFiles, archives: Mapping[str, ArchiveTree]) -> None:
        """`listed` are the archives as files of `outer`, and `archives` what is in each, by its path."""
        self._outer = outer
        self._listed = listed
        self._archives = dict(archives)

    @classmethod
    def of(cls, listed: SourceFiles, progress: ScanProgress) -> JoinedTree:
        """Return the tree of archives that were listed; raises UsageError for a damaged one, OSError."""
        archives = {
            listed.name(number): ArchiveTree.at(listed.tree, listed.listing.file(number), progress)
            for number in range(len(listed))
        }
        return cls(listed.tree, listed, archives)

    @property
    def name(self) -> str:
        """As `Tree.name`."""
        return self._outer.name

    @property
    def is_remote(self) -> bool:
        """As `Tree.is_remote`."""
        return any(archive.is_remote for archive in self._archives.values())

    def __str__(self) -> str:
        return str(self._outer)

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`; the root holds the archives as folders, whose names are paths."""
        if not folder:
            return [Entry(path, "folder") for path in self._archives]
        archive, inner = self._split(folder)
        return archive.scan(inner)

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`."""
        archive, inner = self._split(path)
        return archive.look(inner)

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        archive, inner = self._inner(file)
        return archive.read(inner)

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`."""
        return self._each(files, lambda archive, inner: archive.read_each(inner))

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`."""
        return self._each(files, lambda archive, inner: archive.read_heads(inner, size))

    def open(self, file: ListedFile) -> Ranges:
        """As `Tree.open`."""
        archive, inner = self._inner(file)
        return archive.open(inner)

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`."""
        archive, inner = self._inner(file)
        return archive.stream(inner)

    def local_path(self, file: ListedFile) -> Path | None:
        """As `Tree.local_path`: nowhere."""

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`: of the archive."""
        archive, inner = self._inner(file)
        archive.check(inner)

    def below(self, folder: str) -> ArchiveTree:
        """As `Tree.below`."""
        archive, inner = self._split(folder)
        return archive.below(inner) if inner else archive

    def again(self) -> JoinedTree:
        """As `Tree.again`; raises UsageError (`changed`) where an archive is new, removed or modified."""
        self._listed.check()
        archives = {path: tree.again() for path, tree in self._archives.items()}
        return JoinedTree(self._outer.again(), self._listed, archives)

    def settle(self, newest: int) -> None:
        """As `Tree.settle`."""
        self._outer.settle(newest)

    def _split(self, path: str) -> tuple[ArchiveTree, str]:
        """Return the archive that a path leads into, and the path in it."""
        archive = path
        while archive not in self._archives:
            archive = archive.rpartition("/")[0]
            if not archive:
                raise FileNotFoundError(2, "No such archive", path)
        return self._archives[archive], path[len(archive) + 1 :]

    def _inner(self, file: ListedFile) -> tuple[ArchiveTree, ListedFile]:
        archive, path = self._split(file.path)
        return archive, file._replace(path=path)

    def _each(
        self,
        files: Sequence[ListedFile],
        read: Callable[[ArchiveTree, Sequence[ListedFile]], Iterator[bytes | OSError]],
    ) -> Iterator[bytes | OSError]:
        """Yield the results for files of one archive after another, in their order."""
        inner = [self._inner(file) for file in files]
        for _, group in groupby(inner, key=lambda pair: id(pair[0])):
            pairs = list(group)
            yield from read(pairs[0][0], [listed for _, listed in pairs])
