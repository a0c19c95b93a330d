"""Kinds of sources told apart by the names of their files, for which no reader is imported.

- Says which files belong to which kind of source, by their names.
- Tells masks from the pictures that they belong to, by the paths of both.
- Tells the members of WebDataset's samples by their names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

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


PICTURE_NAMES = re.compile(rf"({'|'.join(map(re.escape, PICTURES))})$")
_PICTURE_FOLDERS = frozenset({"images", "image", "imgs", "jpegimages"})
_MASK_FOLDERS = frozenset({"masks", "mask", "annotations", "labels", "segmentationclass"})
_MASK_NAME = re.compile(r"[-_.](mask|seg|segmentation)$")


def shows_masks(names: Sequence[str]) -> bool:
    """Tell whether there are pictures and masks, by the paths of some files of a source."""
    pictures = [name for name in names if PICTURE_NAMES.search(name.lower())]
    masks = sum(is_mask(name) for name in pictures)
    return 0 < masks < len(pictures) and all(
        is_mask(name) or _is_picture(name, pictures) for name in pictures
    )


def is_mask(path: str) -> bool:
    """Tell whether a picture is the mask of another: by its folder, or by the end of its name."""
    *folders, file = path.lower().split("/")
    return bool(_MASK_FOLDERS.intersection(folders) or _MASK_NAME.search(file.rpartition(".")[0]))


def _is_picture(path: str, pictures: Sequence[str]) -> bool:
    """Tell whether a file lies in a folder of pictures, or has its mask beside it."""
    if _PICTURE_FOLDERS.intersection(path.lower().split("/")[:-1]):
        return True
    stem = path.rpartition(".")[0]
    return any(other != path and other.startswith(stem) and is_mask(other) for other in pictures)


def pair_name(path: str) -> str:
    """Return what a picture and its mask have in common."""
    *folders, file = path.split("/")
    kept = [folder for folder in folders if folder.lower() not in _PICTURE_FOLDERS | _MASK_FOLDERS]
    return "/".join((*kept, _MASK_NAME.sub("", file.rpartition(".")[0])))


NUMBERS = ("cls", "cls2", "index", "inx", "id", "count")
TEXTS = ("txt", "text", "transcript", "caption")
JSON = "json"
"""Endings of members, as in webdataset's own decoders."""


def shows_samples(names: Iterable[str]) -> bool:
    """Tell whether files are samples: some end in .cls, or a picture in the root has a text of its name."""
    members = [name for name in names if "." in name.rpartition("/")[2]]
    if any(ending(name) in ("cls", "cls2") for name in members):
        return True
    keys = Counter(
        sample_key(name) for name in members if "/" not in name and (is_media(name) or is_value(name))
    )
    return any(count > 1 for count in keys.values()) and any(map(is_media, members))


def sample_key(path: str) -> str:
    """Return what the members of a sample have in common."""
    folder, slash, file = path.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def ending(path: str) -> str:
    """Return what follows the last point of a name, in small letters."""
    return path.rpartition(".")[2].lower()


def is_value(path: str) -> bool:
    """Tell whether a member holds a number, a text or JSON."""
    return ending(path) in (*NUMBERS, *TEXTS, JSON)
