"""Says which files belong to which kind of source, by their names."""

from __future__ import annotations

import re

PICTURES = (
    ".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jp2", ".avif", ".heic", ".heif",
)  # fmt: skip
"""Endings of the names of pictures, in small letters."""
SOUNDS = (".wav", ".flac")
"""Endings of the names of sounds, in small letters."""
TEXT_FILES = (".txt", ".text")
"""Endings of the names of texts, in small letters."""

TFDS_INFO, TFDS_FEATURES = "dataset_info.json", "features.json"
SAVED_STATE, SAVED_DICT = "state.json", "dataset_dict.json"
METADATA = re.compile(r"(^|/)metadata\.(jsonl|csv)$")
METADATA_PARQUET = re.compile(r"(^|/)metadata\.parquet$")
COCO = re.compile(r"(^|/)(?=[^/]*\.json$)(instances|[^/]*coco|annotations\.json$)")
TAR_SHARDS = re.compile(r"\.(tar|tar\.gz|tgz|tar\.zst|tzst)$")
TFRECORDS = re.compile(r"\.tfrec(ords?)?(-\d{5}-of-\d{5})?(\.gz)?$")
PARQUET = re.compile(r"\.(parquet|pq)$")
JSON_LINES = re.compile(r"\.(jsonl|ndjson|jsonlines)(\.gz)?$")
CSV = re.compile(r"\.(csv|tsv)(\.gz)?$")
NUMPY = re.compile(r"\.(npy|npz|npy\.gz)$")
IDX = re.compile(r"([-.]idx\d?|-ubyte)(\.gz)?$|[-.]idx\d-\w+(\.gz)?$")


def is_media(name: str) -> bool:
    """Tell whether a file of this name becomes a field of its own."""
    return name.lower().endswith((*PICTURES, *SOUNDS))
