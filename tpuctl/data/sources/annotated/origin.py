"""Where the records of annotated files come from: tables or annotations, and the files of each record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import Folder, Listing
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.source import Indices
from tpuctl.data.trees.tree import Entry


@dataclass(frozen=True)
class MediaOrigin:
    """All files of a source, and which of them each record has."""

    files: SourceFiles
    tables: Sequence[int]
    """Numbers of the files that say something of others."""
    media: Sequence[Listing]
    """The files of each field, one for each record."""
    bad: Sequence[BadRecord]

    @property
    def fingerprint(self) -> str:
        """That of all files, whether a record has them or not."""
        return self.files.fingerprint

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of the records' files, or of the tables, was written to."""
        tables = self.files.listing.stamps[list(self.tables)].tobytes()
        return tables + b"".join(listing.stamp(indices) for listing in self.media)

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing."""
        self.files.check()


def chosen(files: SourceFiles, numbers: Iterable[int]) -> Listing:
    """Return the listing of some of the files, in this order."""
    listing, folder = Listing(files.tree), None
    for number in numbers:
        file = files.listing.file(number)
        above, _, name = file.path.rpartition("/")
        if above != folder:
            listing.start(Folder(above, "", ""))
            folder = above
        listing.add(Entry(name, "file", file.size, file.stamp, checksum=file.checksum))
    return listing
