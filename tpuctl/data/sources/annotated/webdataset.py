"""Reads WebDataset: tar shards whose members of the same name are a sample, `0001.jpg` and `0001.cls`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from tpuctl.data.archives.joined import JoinedTree
from tpuctl.data.archives.tree import ArchiveTree
from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.source_files import SourceFiles, every_file, list_files, split_of
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress
from tpuctl.data.sources.annotated.fields import unreadable_file
from tpuctl.data.sources.annotated.records import Listed, ListedRecord, check_splits, is_media, media_kind
from tpuctl.data.sources.annotated.source import AnnotatedSource
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

SHARDS = re.compile(r"\.(tar|tar\.gz|tgz)$")
_EVERY = re.compile(".")
_LARGEST = 16 << 20
"""Bytes of a member with a text, a number or JSON."""


def shows_samples(names: Iterable[str]) -> bool:
    """Tell whether files are samples: some end in .cls, or a picture in the root has a text of its name."""
    members = [name for name in names if "." in name.rpartition("/")[2]]
    if any(_ending(name) in ("cls", "cls2") for name in members):
        return True
    keys = Counter(_key(name) for name in members if "/" not in name and (is_media(name) or _reads(name)))
    return any(count > 1 for count in keys.values()) and any(map(is_media, members))


def read_webdataset(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the samples of all shards, or of one archive; raises UsageError."""
    files = _members(tree, progress)
    listed = Listed("webdataset", files, bad=list(files.bad))
    samples = _samples(files)
    numbers = (number for members in samples.values() for number in members.values())
    texts = [number for number in numbers if not is_media(files.name(number))]
    contents = dict(zip(texts, files.listing.read_each(np.array(texts, np.int64)), strict=True))
    for key, members in samples.items():
        _add(listed, key, members, contents)
        progress(len(listed.records), len(samples))
    listed.tables = texts
    check_splits(listed.records)
    return listed.source(options, progress)


def _members(tree: Tree, progress: ScanProgress) -> SourceFiles:
    plain = every_file(tree, _EVERY)
    if isinstance(tree, ArchiveTree) or not any(
        SHARDS.search(plain.name(number).lower()) for number in range(len(plain))
    ):
        return plain
    shards = list_files(tree, SHARDS)
    archives = {
        shards.name(number): ArchiveTree.at(tree, shards.listing.file(number), progress)
        for number in range(len(shards))
    }
    return every_file(JoinedTree(tree, archives), _EVERY)


def _samples(files: SourceFiles) -> dict[str, dict[str, int]]:
    """Return the members of each sample, by what follows their key; raises UsageError for unknown ones."""
    samples: dict[str, dict[str, int]] = {}
    for number in range(len(files)):
        path = files.name(number)
        if not (is_media(path) or _reads(path)):
            raise UsageError(
                f"'{path}' is a member of a kind that is not read.",
                hint=f"Read are pictures, sounds, and {', '.join(sorted(_READERS))}.",
                file=path,
            )
        samples.setdefault(_key(path), {})[path[len(_key(path)) + 1 :]] = number
    return samples


def _add(listed: Listed, key: str, members: dict[str, int], contents: dict[int, bytes | OSError]) -> None:
    files: dict[str, int] = {}
    row: dict[str, object] = {}
    for name, number in sorted(members.items(), key=lambda member: _ending(member[0]) == "json"):
        path = listed.files.name(number)
        if is_media(path):
            field = name.rpartition(".")[0] or media_kind(path)[0]
            if field in files:
                first = listed.files.name(files[field])
                listed.bad.append(BadRecord(path, f"is of the field '{field}', as '{first}' is"))
                return
            files[field] = number
            continue
        data = contents[number]
        if isinstance(data, OSError):
            listed.bad.append(unreadable_file(path, data))
            return
        try:
            value = _READERS[_ending(path)](data)
        except (ValueError, RecursionError) as error:
            listed.bad.append(BadRecord(path, f"cannot be read: {error or 'it is nested too deeply'}"))
            return
        if isinstance(value, dict):
            present = row.keys() | files.keys()
            row |= {f"json/{item}" if item in present else item: cell for item, cell in value.items()}
        else:
            row[name.rpartition(".")[0] or _NAMES.get(_ending(path), name)] = value
    splits = filter(None, map(split_of, reversed(key.split("/")[:-1])))
    listed.records.append(ListedRecord(next(splits, ""), files, row, BadRecord(key, "")))


def _key(path: str) -> str:
    folder, slash, file = path.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def _ending(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _reads(path: str) -> bool:
    return _ending(path) in _READERS


def _number(data: bytes) -> int:
    try:
        return int(data.replace(b"_", b"x"))  # Python alone reads 1_0
    except ValueError:
        raise ValueError(f"'{data[:20].decode(errors='replace')}' is no whole number") from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _json(data: bytes) -> object:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


_READERS: dict[str, Callable[[bytes], object]] = {
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count"), _number),
    **dict.fromkeys(("txt", "text", "transcript", "caption"), _text),
    "json": _json,
}
"""Ending of a member's name, as in webdataset's own decoders -> its reader."""
_NAMES = {"cls": "label", "txt": "text", "transcript": "text"}
"""Ending -> name of the field, where it is another."""
