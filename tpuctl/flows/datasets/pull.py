"""Copies a dataset to a folder of this machine: every file verified by the manifest, which comes last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.data.output.manifest import FILE, LARGEST, Manifest, decode_manifest, encode_manifest
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.byte_count import ByteCount, Progress
from tpuctl.flows.download_folder import check_folder, filling
from tpuctl.flows.progress import Report
from tpuctl.local.confined_folder import NotAFileError, read_file
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.object_content import Content
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.local.staged_folder import StagedFolder

WIDTH = 8
"""Files fetched at once."""
_PENDING = ".tpuctl-dataset"
"""Says of a folder without a manifest yet which dataset is on its way there."""


@dataclass(frozen=True)
class DatasetCopy:
    """A dataset in a folder."""

    folder: Path
    files: int
    size: int
    """Bytes of all files."""
    unchanged: int
    """Files that were there already, with the right checksum."""


def pull(bucket: Bucket, manifest: Manifest, folder: Path, report: Report, progress: Progress) -> DatasetCopy:
    """Bring a dataset into a folder; files that are there already are not fetched again.

    Raises StateError for a dataset that is damaged, UsageError for a folder with something else, or that
    cannot be written.
    """
    objects = _objects(bucket, manifest)
    size = sum(item.size for item in objects.values())

    def check() -> None:
        check_folder(folder, f"dataset {manifest.ref}", lambda: _is_of(folder, manifest))

    with filling(folder, report, check) as local, ByteCount(progress) as count:
        local.write(str(manifest.ref).encode(), (_PENDING,))
        local.remove((FILE,))
        report(f"fetching {len(objects)} files")
        count.expect(size)
        new = _fetch(bucket, local, objects, count)
        local.write(encode_manifest(manifest), (FILE,))
        local.remove((_PENDING,))
    return DatasetCopy(folder, len(objects), size, len(objects) - new)


def _fetch(bucket: Bucket, local: StagedFolder, objects: dict[str, Object], count: ByteCount) -> int:
    """Fetch what the folder lacks and return the number of files that were fetched."""

    def bring(file: str) -> bool:
        item, parts = objects[file], local_parts(file)
        try:
            if local.has(parts, item.content):
                count.add(item.size)
                return False
            with local.staged(parts) as path:
                bucket.download(item, path, count.add)
        except NotAFileError as error:
            raise UsageError(f"{file} {error}.", hint="Name another folder with --to.") from error
        return True

    return sum(values(fanout(bring, objects, width=WIDTH)))


def _objects(bucket: Bucket, manifest: Manifest) -> dict[str, Object]:
    """Return the object of each file in the manifest; raises StateError for one with another content."""
    listed = {
        item.name.removeprefix(manifest.ref.folder): item for item in bucket.objects(manifest.ref.folder)
    }
    contents: dict[str, Content] = {shard.file: shard.content for shard in manifest.shards}
    contents |= {file: entry.content for file, entry in manifest.files.items()}
    for file, content in contents.items():
        try:
            local_parts(file)
        except UnsafeNameError as error:
            raise StateError(f"{file} {error}.", hint=f"tpuctl data describe {manifest.ref}") from error
        if file not in listed or listed[file].content != content:
            raise StateError(
                f"{file} of the dataset {manifest.ref} is not what its manifest says.",
                hint=f"tpuctl data verify {manifest.ref}",
            )
    return {file: listed[file] for file in contents}


def _is_of(folder: Path, manifest: Manifest) -> bool:
    wanted = str(manifest.ref).encode()
    try:
        return read_file(folder, _PENDING, len(wanted) + 1) == wanted
    except (FileNotFoundError, NotAFileError):
        pass
    try:
        data = read_file(folder, FILE, LARGEST + 1)
    except (FileNotFoundError, NotAFileError):
        return False
    return decode_manifest(data, None, str(folder / FILE)).ref == manifest.ref
