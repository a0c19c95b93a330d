"""Tells masks from the pictures that they belong to, by the paths of both."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpuctl.data.sources.names.files import PICTURES

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
