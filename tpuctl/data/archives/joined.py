"""Reads several archives as one tree: each is a folder of the name that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO

from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.source import ScanProgress
from tpuctl.data.trees.tree import Entry, ListedFile, Ranges, Tree


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
