"""Reports: files that the script leaves in a folder on the host, kept in the bucket beside its log."""

from __future__ import annotations

import mimetypes
import os
import sys
from typing import List

from tpuctl.worker import gcs

LIMIT = 32 * 1024 * 1024
"""Bytes of one report: larger things belong in the run's outputs."""


def ship(bucket: gcs.Bucket, name: str, folder: str) -> None:
    """Write the plain files of `folder` to `name`; one that is too large stays on the host."""
    for file in _files(folder):
        path = os.path.join(folder, file)
        size = os.path.getsize(path)
        if size > LIMIT:
            print("[tpuctl] the report %s has %d bytes: left on the host" % (file, size), file=sys.stderr)
            continue
        with open(path, "rb") as stream:
            data = stream.read()
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        bucket.put(name + file, data, content_type=kind)


def _files(folder: str) -> List[str]:
    """Names of finished files: no links, which may lead anywhere, and no drafts."""
    with os.scandir(folder) as entries:
        plain = [one.name for one in entries if one.is_file(follow_symlinks=False)]
    return sorted(one for one in plain if not one.startswith(".") and not one.endswith(".part"))
