"""Making a dataset exist: all of it at once, decided by a single write, and finished by whoever comes along.

1. All shards are staged. `staging/DIGEST.moves.json` says which becomes which file, and holds the small ones.
2. `commit.json`, which is the manifest, is created where there is none: this decides between several uploads.
3. The staged shards are moved to their names and the small files written; what a removed dataset left goes.
4. `commit.json` is copied, by the service, to `manifest.json`: now the dataset exists. What is staged goes.

An upload that finds a `commit.json` without a manifest does steps 3 and 4 first: a kill at any point leaves
either nothing or a dataset that the next upload completes. Removing a dataset begins with `commit.json`: the
copy in step 4 names its generation, so an upload that was long asleep cannot bring a removed dataset back.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_layout import dataset
from tpuctl.data.output.manifest import FILE, FileEntry, Manifest, ShardEntry, decode_manifest
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.datasets.staging import FOLDER
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

COMMIT = "commit.json"
_WIDTH = 8
_TRIES = 3
_TYPES = {".json": "application/json", ".txt": "text/plain"}


class Moves(msgspec.Struct, frozen=True):
    """What a commit consists of besides its manifest."""

    shards: dict[str, str]
    """File name of each shard -> object that holds it, staged."""
    files: dict[str, str]
    """The small files: name -> text."""


class Commit:
    """The commit of one version of a dataset."""

    def __init__(self, bucket: Bucket, name: str, version: str) -> None:
        self._bucket = bucket
        self._folder = dataset(name, version)
        self._name = f"{name}/{version}"

    def decide(self, manifest: bytes, files: Mapping[str, bytes], shards: Mapping[str, str]) -> bytes:
        """Bring the dataset of `manifest` about unless another is first; return the manifest that stands."""
        moves = Moves(dict(shards), {name: data.decode() for name, data in files.items()})
        self._bucket.upload(self._moves_name(manifest), [msgspec.json.encode(moves)], "application/json")
        for _ in range(_TRIES):
            try:
                self._bucket.create(self._folder + COMMIT, manifest)
            except ConflictError:
                pass  # another upload has decided: what it began is finished
            standing = self.complete()
            if standing is not None:
                return standing
        raise StateError("The dataset was removed while it was uploaded.", hint="Run the upload again.")

    def complete(self) -> bytes | None:
        """Finish what was decided, by us or by another; return the manifest that stands, None without one.

        Raises StateError when what was decided cannot be finished any more.
        """
        decided = self._bucket.stat(self._folder + COMMIT)
        standing = self._bucket.find(self._folder + FILE)
        if standing is None and decided is not None:
            standing = self._finish(decided)
        if standing is not None:
            self._clear(decided)
        return standing

    def _finish(self, decided: Object) -> bytes | None:
        try:
            manifest = self._bucket.stream(decided).read(decided.size)
            self._put_in_place(manifest)
            self._bucket.copy(decided, self._folder + FILE)
        except (ConflictError, NotFoundError):
            return self._bucket.find(self._folder + FILE)  # finished by another, or removed
        return manifest

    def _put_in_place(self, data: bytes) -> None:
        manifest = decode_manifest(data)
        found = self._bucket.find(self._moves_name(data))
        moves = msgspec.json.decode(found, type=Moves) if found else Moves({}, {})
        staged = {one.name: one for one in self._bucket.objects(self._folder + FOLDER)}

        def place(entry: ShardEntry) -> None:
            self._place_shard(entry, staged.get(moves.shards.get(entry.file, "")))

        values(fanout(place, manifest.shards, width=_WIDTH))
        for name, entry in manifest.files.items():
            self._place_file(name, entry, moves.files.get(name))

    def _place_shard(self, entry: ShardEntry, staged: Object | None) -> None:
        name = self._folder + entry.file
        for _ in range(_TRIES):
            if staged is not None:
                try:
                    self._bucket.move(staged, name)
                    return
                except ConflictError:
                    pass  # the name is taken: by this shard already, or by what a removed dataset left
                except NotFoundError:
                    staged = None  # another upload that finishes the same has moved it
            there = self._bucket.stat(name)
            if there is not None and there.content == entry.content:
                return
            if there is None or staged is None:
                break
            self._bucket.remove(there)
        raise self._lost(entry.file)

    def _place_file(self, file: str, entry: FileEntry, text: str | None) -> None:
        name = self._folder + file
        for _ in range(_TRIES):
            there = self._bucket.stat(name)
            if there is not None and there.content == entry.content:
                return
            if text is None:
                break
            if there is not None:
                self._bucket.remove(there)
            try:
                self._bucket.create(name, text.encode(), _TYPES["." + file.rpartition(".")[2]])
                return
            except ConflictError:
                continue
        raise self._lost(file)

    def _clear(self, decided: Object | None) -> None:
        """Remove what is no longer needed; it harms nobody where that is not allowed."""
        staged = self._bucket.objects(self._folder + FOLDER)
        fanout(self._bucket.remove, [*([decided] if decided else []), *staged], width=_WIDTH)

    def _moves_name(self, manifest: bytes) -> str:
        return f"{self._folder}{FOLDER}{sha256(manifest).hexdigest()}.moves.json"

    def _lost(self, file: str) -> TpuctlError:
        return StateError(
            f"An upload that was not finished has lost {file}.",
            hint=f"Remove what is left of it: tpuctl data rm {self._name}",
            file=file,
        )


def same(standing: Manifest, made: Manifest) -> Manifest:
    """Return the manifest that stands if it is the one made; raises ConflictError."""
    if standing.digest != made.digest:
        raise taken(made.name, made.version)
    return standing


def taken(name: str, version: str) -> ConflictError:
    """Return the error for a version that has other content."""
    return ConflictError(
        f"Version {version} of the dataset '{name}' exists with other content.",
        hint="Give the new one another number with --version.",
    )
