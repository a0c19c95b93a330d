"""Fetches the code of a run, checks that it is what was submitted, and unpacks it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import time
import zlib
from typing import IO, Iterator, Tuple

from tpuctl.host import gcs, timing
from tpuctl.host.worker.preparation.tar_files import FILE, FOLDER, Member, TarError, TarReader, TooMuchError
from tpuctl.host.worker.records import Spec

PART = 4 * 1024 * 1024
"""Bytes that one request fetches: memory is flat, and a cut connection costs no more."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BundleError(Exception):
    """The bundle is not the code that was submitted, or is unsafe to unpack."""


def fetch(bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
    """Unpack a spec's bundle into the new `folder`; raises BundleError when it is damaged or unsafe.

    A bucket that cannot be reached is waited for: nothing runs yet that its silence would harm.
    """
    end = time.monotonic() + timing.CODE_TIMEOUT
    while True:
        try:
            return _fetch(bucket, spec, folder)
        except gcs.UnreachableError:
            if time.monotonic() > end:
                raise


def _fetch(bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
    """Unpack it, by one try of each request.

    Everything is checked before the first file is written.
    """
    with _scratch(os.path.dirname(folder), spec.bundle_size) as archive:
        _download(bucket, spec, archive)
        for member, _ in _members(archive, spec.unpacked_size):
            _check(member)
        os.makedirs(folder)
        for member, content in _members(archive, spec.unpacked_size):
            target = os.path.join(folder, member.name)
            if member.kind == FOLDER:
                os.makedirs(target, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                _write(member, content, target)


def _scratch(folder: str, size: int) -> IO[bytes]:
    """Return a place for so many bytes: memory for what one request fetches, else a file without a name."""
    if size <= PART:
        return io.BytesIO()
    import tempfile  # noqa: PLC0415  slow, and most bundles are small

    return tempfile.TemporaryFile(dir=folder)


def _download(bucket: gcs.Bucket, spec: Spec, archive: IO[bytes]) -> None:
    """Write the bundle's bytes to a file; they are not read before their number is right."""
    place = "gs://%s/%s" % (bucket.name, spec.bundle)
    generation, size = bucket.stat(spec.bundle)
    if not generation:
        raise FileNotFoundError(place)
    if size != spec.bundle_size:
        raise BundleError("%s has %d bytes, not %d: %s" % (place, size, spec.bundle_size, _REPLACED))
    digest = hashlib.sha256()
    for start in range(0, size, PART):
        data = bucket.part(spec.bundle, generation, start, min(start + PART, size))
        digest.update(data)
        archive.write(data)
    if digest.hexdigest() != spec.bundle_sha256:
        text = "the code in %s has the hash %s, not %s: %s"
        raise BundleError(text % (place, digest.hexdigest(), spec.bundle_sha256, _REPLACED))


_REPLACED = "it was replaced after the run was submitted; submit it again"


def _members(archive: IO[bytes], most: int) -> Iterator[Tuple[Member, TarReader]]:
    """Yield the members of a tar.gz in order, each with what reads its content until the next one.

    Raises BundleError for damage and for too many bytes.
    """
    archive.seek(0)
    reader = TarReader(gzip.GzipFile(fileobj=archive), most)  # type: ignore[arg-type]
    try:
        for member in reader:
            yield member, reader
    except TooMuchError:
        raise BundleError("the bundle unpacks to more bytes than were submitted") from None
    except (TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BundleError("the bundle is damaged: %s" % error) from None


def _check(member: Member) -> None:
    """Raise BundleError unless the member is a plain file or folder inside the folder."""
    parts = member.name.split("/")
    inside = not {"", ".", ".."}.intersection(parts) and "\0" not in member.name
    if not inside or member.kind not in (FILE, FOLDER):
        raise BundleError("the bundle holds %r, which is not a plain file inside it" % member.name)


def _write(member: Member, content: TarReader, target: str) -> None:
    """Write a file; of its mode only whether its owner may execute it counts."""
    with open(os.open(target, _CREATE, 0o755 if member.mode & 0o100 else 0o644), "wb") as stream:
        shutil.copyfileobj(content, stream)
