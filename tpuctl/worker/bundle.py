"""Fetches the code of a run, checks its hash, and unpacks it."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile

from tpuctl.worker import gcs


class BundleError(Exception):
    """The bundle is not the code that was submitted, or is unsafe to unpack."""


def fetch(bucket: gcs.Bucket, name: str, sha256: str, folder: str) -> None:
    """Unpack the bundle `name` into `folder`; raises BundleError when it is damaged or unsafe."""
    data = bucket.get(name)
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise BundleError("the code in gs://%s/%s has the hash %s" % (bucket.name, name, digest))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive.getmembers():
            _check(member, folder)
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.12 warns without one
        archive.extractall(folder)


def _check(member: tarfile.TarInfo, folder: str) -> None:
    """Raise BundleError unless the member is a plain file or folder inside `folder`.

    tarfile's own filter came after Python 3.8.
    """
    target = os.path.realpath(os.path.join(folder, member.name))
    inside = target.startswith(os.path.realpath(folder) + os.sep)
    if not inside or not (member.isfile() or member.isdir()):
        raise BundleError("the bundle holds %r, which is not a plain file inside it" % member.name)
