"""Unpacks tar archives in tests, with every Python that tpuctl runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a folder, with the filter for data where Python has filters: from 3.11.4 on."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)
