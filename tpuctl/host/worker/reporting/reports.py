"""Copies files that the script writes into its report folder to the bucket, beside its log."""

from __future__ import annotations

import os
from typing import List

from tpuctl.host import gcs
from tpuctl.host.worker.reporting.logs import say

LIMIT = 32 * 1024 * 1024
"""Most bytes of one report: larger files belong in the run's outputs."""


def ship(bucket: gcs.Bucket, name: str, folder: str) -> None:
    """Copy the finished files of `folder` to the bucket's folder `name`; files over LIMIT are skipped."""
    files = _finished_files(folder)
    if not files:
        return
    import mimetypes  # noqa: PLC0415  slow, and most scripts write no report

    for file in files:
        path = os.path.join(folder, file)
        size = os.path.getsize(path)
        if size > LIMIT:
            say("the report %s has %d bytes: skipped" % (file, size))
            continue
        with open(path, "rb") as stream:
            data = stream.read()
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        if not bucket.create(name + file, data, kind):
            say("another program has written the report %s" % file)


def _finished_files(folder: str) -> List[str]:
    """Return names of plain files: no links, which may point anywhere, and no drafts."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(name for name in names if not name.startswith(".") and not name.endswith(".part"))
