"""Tells the members of WebDataset's samples by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tpuctl.data.sources.names.files import is_media

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
