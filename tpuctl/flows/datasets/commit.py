"""Publishes a dataset atomically: one write decides, and any later upload completes it.

1. All shards are staged. `staging/DIGEST.moves.json` says which becomes which file, and holds the small ones.
2. `commit.json`, which is the manifest, is created unless it exists: this decides between several uploads.
3. Staged shards are moved to their names, small files are written, rests of a removed dataset are deleted.
4. `commit.json` is copied, by the service, to `manifest.json`: now the dataset exists.
5. Staged objects are deleted.

An upload that finds a `commit.json` without a manifest does steps 3 to 5 first: a kill at any point leaves
either nothing or a dataset that the next upload completes. Removing a dataset begins with `commit.json`: the
copy in step 4 names its generation, so a suspended upload cannot bring a removed dataset back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects.bad_object import BadObjectError, too_large
from tpuctl.bucket_objects.decoding import DecodeError, decode
from tpuctl.data.output.manifest import FILE, LARGEST, FileEntry, Manifest, ShardEntry, decode_manifest
from tpuctl.datasets import DatasetRef
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.datasets.staging import FOLDER
from tpuctl.parallel import fanout, values
from tpuctl.polling import NO_PAUSE, retry

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

COMMIT = "commit.json"
_WIDTH = 8
_ATTEMPTS = 3
_TYPES = {".json": "application/json", ".txt": "text/plain"}


class Moves(msgspec.Struct, frozen=True):
    """What a commit consists of besides its manifest."""

    shards: dict[str, str]
    """File name of each shard -> object that holds it, staged."""
    files: dict[str, str]
    """The small files: name -> text."""


class _RemovedError(StateError):
    """The dataset was removed between its commit and its manifest."""


class Commit:
    """The commit of one version of a dataset."""

    def __init__(self, bucket: Bucket, ref: DatasetRef) -> None:
        self._bucket = bucket
        self._ref = ref
        self._folder = ref.folder

    def decide(self, manifest: bytes, files: Mapping[str, bytes], shards: Mapping[str, str]) -> bytes:
        """Publish the dataset of `manifest` unless another is first; return the manifest that stands."""
        moves = Moves(dict(shards), {name: data.decode() for name, data in files.items()})
        self._write_moves(_digest(manifest), msgspec.json.encode(moves))
        return retry(lambda: self._publish(manifest), on=_RemovedError, attempts=_ATTEMPTS, backoff=NO_PAUSE)

    def complete(self) -> bytes | None:
        """Finish what this or another upload decided; return the manifest that stands, None without one.

        Raises StateError when what was decided cannot be finished any more.
        """
        decided = self._bucket.stat(self._folder + COMMIT)
        standing = self._bucket.find(self._folder + FILE)
        if standing is None and decided is not None:
            standing = self._finish(decided)
        if standing is not None:
            self._clean_up(decided)
        return standing

    def rehearse(self, shards: Mapping[str, Object], files: Iterable[str], notes: Iterable[Object]) -> None:
        """Send what `decide` sends where no other upload is first, without content, for a dry run.

        `shards` is file name -> staged object, `files` the names of the small files, `notes` those staged.
        """
        moves = self._write_moves("MANIFEST_SHA256", b"")
        self._bucket.create(self._folder + COMMIT, b"")
        decided = self._bucket.stat(self._folder + COMMIT)
        for file, staged in shards.items():
            self._bucket.move(staged, self._folder + file)
        for file in files:
            self._create_file(file, "")
        if decided is not None:
            self._bucket.copy(decided, self._folder + FILE)
            self._bucket.remove(decided)
        for leftover in (moves, *notes):
            self._bucket.remove(leftover)

    def _publish(self, manifest: bytes) -> bytes:
        try:
            self._bucket.create(self._folder + COMMIT, manifest)
        except ConflictError:
            pass  # another upload has decided: what it began is finished
        standing = self.complete()
        if standing is None:
            raise _RemovedError(
                "The dataset was removed while it was uploaded.", hint="Run the upload again."
            )
        return standing

    def _finish(self, decided: Object) -> bytes | None:
        try:
            if decided.size > LARGEST:
                raise too_large(decided.name, LARGEST)
            manifest = self._bucket.stream(decided).read(decided.size)
            self._put_in_place(manifest)
            self._bucket.copy(decided, self._folder + FILE)
        except (ConflictError, NotFoundError):
            return self._bucket.find(self._folder + FILE)  # finished by another, or removed
        return manifest

    def _put_in_place(self, data: bytes) -> None:
        manifest = decode_manifest(data, self._ref, COMMIT)
        moves = self._read_moves(self._moves_name(_digest(data)))
        staged = {item.name: item for item in self._bucket.objects(self._folder + FOLDER)}

        def place(entry: ShardEntry) -> None:
            self._place_shard(entry, staged.get(moves.shards.get(entry.file, "")))

        values(fanout(place, manifest.shards, width=_WIDTH))
        for name, entry in manifest.files.items():
            self._place_file(name, entry, moves.files.get(name))

    def _read_moves(self, name: str) -> Moves:
        recorded = self._bucket.find(name)
        try:
            return Moves({}, {}) if recorded is None else decode(recorded, Moves)
        except DecodeError as error:
            hint = f"Remove what is left of the upload: tpuctl data rm {self._ref}"
            raise BadObjectError(name, f"does not say how to finish an upload: {error}", hint=hint) from error

    def _place_shard(self, entry: ShardEntry, staged: Object | None) -> None:
        with self._lost_on_conflict(entry.file):
            retry(
                lambda: self._move_shard(entry, staged),
                on=ConflictError, attempts=_ATTEMPTS, backoff=NO_PAUSE,
            )  # fmt: skip

    def _move_shard(self, entry: ShardEntry, staged: Object | None) -> None:
        """Raises ConflictError when another object had the name, which is removed by then."""
        name = self._folder + entry.file
        if staged is not None:
            try:
                self._bucket.move(staged, name)
                return
            except ConflictError:
                pass  # the name is taken: by this shard already, or by what a removed dataset left
            except NotFoundError:
                staged = None  # another upload that finishes the same has moved it
        existing = self._bucket.stat(name)
        if existing is not None and existing.content == entry.content:
            return
        if existing is None or staged is None:
            raise self._lost(entry.file)
        self._bucket.remove(existing)
        raise ConflictError(f"{name} was another object.")

    def _place_file(self, file: str, entry: FileEntry, text: str | None) -> None:
        with self._lost_on_conflict(file):
            retry(
                lambda: self._write_file(file, entry, text),
                on=ConflictError, attempts=_ATTEMPTS, backoff=NO_PAUSE,
            )  # fmt: skip

    def _write_file(self, file: str, entry: FileEntry, text: str | None) -> None:
        """Raises ConflictError when another upload writes the file at the same time."""
        existing = self._bucket.stat(self._folder + file)
        if existing is not None and existing.content == entry.content:
            return
        if text is None:
            raise self._lost(file)
        if existing is not None:
            self._bucket.remove(existing)
        self._create_file(file, text)

    def _create_file(self, file: str, text: str) -> None:
        content_type = _TYPES.get("." + file.rpartition(".")[2], "application/octet-stream")
        self._bucket.create(self._folder + file, text.encode(), content_type)

    def _clean_up(self, decided: Object | None) -> None:
        """Remove what is no longer needed; where that is not allowed, it does no harm."""
        staged = self._bucket.objects(self._folder + FOLDER)
        fanout(self._bucket.remove, [*([decided] if decided else []), *staged], width=_WIDTH)

    def _write_moves(self, digest: str, data: bytes) -> Object:
        return self._bucket.upload(self._moves_name(digest), [data], "application/json")

    def _moves_name(self, digest: str) -> str:
        return f"{self._folder}{FOLDER}{digest}.moves.json"

    @contextmanager
    def _lost_on_conflict(self, file: str) -> Iterator[None]:
        try:
            yield
        except ConflictError as error:
            raise self._lost(file) from error

    def _lost(self, file: str) -> TpuctlError:
        return StateError(
            f"An upload that was not finished has lost {file}.",
            hint=f"Remove what is left of it: tpuctl data rm {self._ref}",
            file=file,
        )


def require_same(standing: Manifest, converted: Manifest) -> Manifest:
    """Return the manifest that stands if it is the one just made; raises ConflictError."""
    if standing.digest != converted.digest:
        raise version_taken(converted.ref)
    return standing


def version_taken(ref: DatasetRef) -> ConflictError:
    """Return the error for a version that has other content."""
    return ConflictError(
        f"Version {ref.version} of the dataset '{ref.name}' exists with other content.",
        hint="Give the new one another number with --version.",
    )


def _digest(manifest: bytes) -> str:
    return sha256(manifest).hexdigest()
