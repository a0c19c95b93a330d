"""Tells archives by the ends of their names, in small letters."""

from __future__ import annotations

ZSTANDARD = (".tar.zst", ".tzst")
ZIP, TAR, PACKED_TAR = (".zip",), (".tar",), (".tar.gz", ".tgz", *ZSTANDARD)
SUFFIXES = (*ZIP, *TAR, *PACKED_TAR)
