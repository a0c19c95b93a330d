"""Reads which checkpoints of a run are complete, each format by the rule of the library that writes it.

- Defines a checkpoint as a reader finds it in a listing, and its step.
- Reads checkpoints of whole files, alone or with an index that names its parts.

  A bucket shows an object once all of it was written, so that a file alone is complete. Of several, the index
  is written after the parts: huggingface_hub/serialization/_torch.py, `save_torch_state_dict`;
  keras/src/saving/saving_lib.py, `ShardedH5IOStore.close`.
- Reads TensorFlow's checkpoints: one counts once the state file `checkpoint`, written last, names it.

  `tf.train.CheckpointManager` writes the files, then the state file, then deletes old checkpoints, then
  writes the state file again (tensorflow/python/checkpoint/checkpoint_management.py,
  `_record_and_sweep_state`): one that is named may lack files. How many there are is in their names
  (`data-00000-of-00002`).
- Reads Orbax's checkpoints, also those that Flax and MaxText write by it.

  In a bucket a checkpoint is written at its place and counts once it has `commit_success.txt`
  (orbax/checkpoint/_src/path/atomicity.py, `CommitFileTemporaryPath.validate_final`). With
  AtomicityMode.ATOMIC_RENAME it is written as NAME.orbax-checkpoint-tmp*, then renamed
  (`validate_atomic_rename_final_path`): such a name never counts, and as a bucket renames file by file,
  neither does the final name while the other is there. Both modes write `commit_timestamp_nsecs` into
  `_CHECKPOINT_METADATA` once everything else is written.
- Reads distributed checkpoints of PyTorch: a folder of `.distcp` files, whose `.metadata` is written
  last.

  torch/distributed/checkpoint/filesystem.py, `_FileSystemWriter.finish`: the coordinator writes it once every
  rank has written. One that is older than a part is that of the checkpoint which the folder had before.
- Reads SavedModels: the variables come first, saved_model.pb after them.

  tensorflow/python/saved_model/save.py, `save_and_return_nodes`; what loads one needs saved_model.pb and, if
  there are variables, all of their files.
- Finds all checkpoints of a run: each reader gets what those before it left.
- Holds what one listing has of a bucket, and reads small objects in the generations that it lists.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects import BadObjectError, DecodeError, decode
from tpuctl.errors import NotFoundError
from tpuctl.flows.progress import Report, silent

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


_NAMED_STEP = re.compile(r"step[^0-9a-z]?(\d{1,15})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?:\A|[^0-9.])(\d{1,15})\Z")
"""At the end of a name without its suffix; that of `loss-0.31` is none."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in the bucket."""

    name: str
    """Name of its folder or file in the bucket, or the beginning that its files share."""
    format: str
    """The library that writes it, for people."""
    step: int | None
    """The number that its name has, which libraries make of the step; None without one."""
    files: tuple[str, ...]
    """Names of its objects, `marks` excepted where it shares them."""
    marks: tuple[str, ...] = ()
    """Objects that say that it is complete; a copy of it gets them last."""
    reason: str = ""
    """Why it is not complete, as the library that reads it decides; empty for a committed one."""

    @property
    def label(self) -> str:
        """Its name without the folders above."""
        return self.name.rpartition("/")[2]


def step_of(name: str, suffix: str = "") -> int | None:
    """Return the number in the name of a checkpoint, or in that of the nearest folder that has one."""
    _, _, below = name.removesuffix(suffix).rpartition("/checkpoints/")
    for part in reversed(below.split("/")):
        match = _NAMED_STEP.search(part) or _LAST_NUMBER.search(part)
        if match:
            return int(match[1])
    return None


def below(names: Sequence[str], folder: str) -> Sequence[str]:
    """Return the names in a folder, which ends in a slash; `names` are in order.

    Readers call it for each of the folders, of which whoever writes to the bucket may make very many.
    """
    behind = f"{folder[:-1]}{chr(ord('/') + 1)}"
    return names[bisect_left(names, folder) : bisect_left(names, behind)]


FORMATS = {
    # suffix: the library that writes such files
    ".keras": "Keras",
    ".weights.h5": "Keras",
    ".h5": "Keras",
    ".safetensors": "safetensors",
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".ckpt": "PyTorch",
    ".bin": "PyTorch",
    ".msgpack": "Flax",
}
INDEXES = {
    # suffix of an index: the library
    ".safetensors.index.json": "safetensors",
    ".bin.index.json": "PyTorch",
    ".weights.json": "Keras",
}
LARGEST_INDEX = 64 << 20
"""Most bytes of an index: a line for each tensor of a model."""
MOST_TENSORS = 1_000_000
"""In an index: names of a few bytes each would fill the memory."""
_PART = re.compile(r"(?P<name>.+)-\d{5}-of-\d{5}(?P<suffix>\.safetensors|\.bin)")
"""A part by the names that Hugging Face's libraries give."""


class Index(msgspec.Struct, frozen=True):
    """What counts of an index."""

    weight_map: dict[str, str | list[str]]
    """The file, or files, of each tensor."""


def read_files(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints of whole files among some names; raises GoneError."""
    parts: set[str] = set()
    for name in names:
        if suffix := _suffix(name, INDEXES):
            checkpoint = _indexed(listing, name, suffix, names)
            parts.update(checkpoint.files)
            yield checkpoint
    without_index: dict[str, list[str]] = {}
    for name in names:
        suffix = _suffix(name, FORMATS)
        if name in parts or not suffix:
            continue
        if part := _PART.fullmatch(name):
            without_index.setdefault(f"{part['name']}{part['suffix']}.index.json", []).append(name)
        else:
            yield Checkpoint(name, FORMATS[suffix], step_of(name, suffix), (name,))
    for index, files in without_index.items():
        library = INDEXES[_suffix(index, INDEXES)]
        reason = f"its index {index.rpartition('/')[2]} is missing"
        yield Checkpoint(index, library, step_of(index, ".index.json"), tuple(files), reason=reason)


def _indexed(listing: Listing, name: str, suffix: str, names: Collection[str]) -> Checkpoint:
    """Return the checkpoint of an index."""
    folder = name.rpartition("/")[0]
    step = step_of(name, suffix)
    try:
        data = listing.read(name, LARGEST_INDEX) or b""
        if data.count(b'"') > 4 * MOST_TENSORS:
            raise DecodeError("it names too many tensors")
        index = decode(data, Index)
    except DecodeError:
        return Checkpoint(name, INDEXES[suffix], step, (name,), (name,), "its index cannot be read")
    named = (files if isinstance(files, list) else [files] for files in index.weight_map.values())
    wanted = sorted({f"{folder}/{file}" for files in named for file in files})
    lacking = next((part for part in wanted if part not in names), "")
    reason = f"its file {lacking.rpartition('/')[2]} is missing" if lacking else ""
    files = (*(part for part in wanted if part in names), name)
    return Checkpoint(name, INDEXES[suffix], step, files, (name,), reason)


def _suffix(name: str, table: Collection[str]) -> str:
    """Return the longest suffix of a table that a name has; empty for none."""
    return max((suffix for suffix in table if name.endswith(suffix)), key=len, default="")


STATE_FILE = "checkpoint"
LARGEST_STATE = 1 << 20
"""Most bytes of a state file: it lists about five checkpoints, or thousands of short names."""
SHARD = re.compile(r"(?P<checkpoint>.+)\.(?:index|data-\d{5}-of-(?P<count>\d{5}))")
_TEMPORARY = re.compile(
    r"(?P<checkpoint>.+?)(?:_temp/part-\d{5}-of-\d{5}.*|\.(?:index|data-\d{5}-of-\d{5})\.tempstate\d+)"
)
"""What is written before it is merged under its name: tensorflow/core/kernels/save_restore_v2_ops.cc."""
_DRAFT = re.compile(r"(?:.*/)?checkpoint\.tmp[0-9a-f]{32}")
"""A state file that is not renamed yet: tensorflow/python/lib/io/file_io.py, atomic_write_string_to_file."""
_PATH = re.compile(r'^(?:all_)?model_checkpoint_paths?: "(?P<path>[^"]+)"', re.MULTILINE)
"""A checkpoint that a state file names."""


def read_tensorflow(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints among some names; raises GoneError."""
    files: dict[str, list[str]] = {}
    temporary: dict[str, list[str]] = {}
    for name in names:
        if part := _TEMPORARY.fullmatch(name):
            temporary.setdefault(f"{part['checkpoint']}_temp", []).append(name)
        elif shard := SHARD.fullmatch(name):
            files.setdefault(shard["checkpoint"], []).append(name)
        elif _DRAFT.fullmatch(name):
            yield Checkpoint(name, "TensorFlow", None, (name,), reason="TensorFlow has not renamed it yet")
    for folder, parts in temporary.items():
        reason = "TensorFlow has not merged it yet"
        yield Checkpoint(folder, "TensorFlow", step_of(folder, "_temp"), tuple(parts), reason=reason)
    named = _named(listing, names) if files else {}
    for checkpoint, own in files.items():
        state_file = named.get(checkpoint)
        reason = missing(checkpoint, own) if state_file else "no state file names it"
        marks = (state_file,) if state_file else ()
        yield Checkpoint(checkpoint, "TensorFlow", step_of(checkpoint), tuple(own), marks, reason)


def missing(checkpoint: str, files: Collection[str]) -> str:
    """Return which file a checkpoint in TensorFlow's format lacks, as a reason; empty for a complete one."""
    counts = {shard["count"] for shard in map(SHARD.fullmatch, files) if shard and shard["count"]}
    count, present = min(counts, default="00001"), set(files)
    shards = (f"{checkpoint}.data-{number:05}-of-{count}" for number in range(int(count)))
    lacking = next((name for name in chain([f"{checkpoint}.index"], shards) if name not in present), "")
    return f"its file {lacking.rpartition('/')[2]} is missing" if lacking else ""


def _named(listing: Listing, names: Collection[str]) -> dict[str, str]:
    """Return the checkpoints that state files name, each with its state file; paths are relative or gs://."""
    named = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        if file == STATE_FILE:
            content = listing.read(name, LARGEST_STATE) or b""
            for path in _PATH.findall(content.decode("utf-8", "replace")):
                here = path.removeprefix(f"gs://{listing.bucket_name}/")
                named[here if path.startswith("gs://") else f"{folder}/{path}"] = name
    return named


def state_file(checkpoints: Collection[str]) -> bytes:
    """Return the content of a state file that names checkpoints of its folder, the newest one last."""
    *_, newest = names = [name.rpartition("/")[2] for name in checkpoints]
    lines = [
        f'model_checkpoint_path: "{newest}"',
        *(f'all_model_checkpoint_paths: "{name}"' for name in names),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


COMMITTED = "commit_success.txt"
METADATA = "_CHECKPOINT_METADATA"
TEMPORARY = ".orbax-checkpoint-tmp"
LARGEST_METADATA = 4 << 20
"""Most bytes of `_CHECKPOINT_METADATA`, in which a user may store more."""
_FILES = frozenset({COMMITTED, METADATA, "_METADATA", "manifest.ocdbt", "_sharding"})
_FOLDERS = re.compile(r"ocdbt\.process_\d+|array_metadatas")
_STEP = re.compile(r"(?:.*_)?\d+")
"""Name of a step's folder, _src/path/step.py."""


class StepMetadata(msgspec.Struct, frozen=True):
    """What counts of `_CHECKPOINT_METADATA`."""

    commit_timestamp_nsecs: int | None


def read_orbax(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints among some names; raises GoneError."""
    folders: set[str] = set()
    for folder in sorted({*map(_step_folder, names)} - {""}, key=len):
        if folders.isdisjoint(_above(folder)):
            folders.add(folder)
    ordered = sorted(names)
    for folder in sorted(folders):
        files = tuple(below(ordered, f"{folder}/"))
        marks = tuple(mark for mark in (f"{folder}/{COMMITTED}", f"{folder}/{METADATA}") if mark in files)
        reason = _reason(listing, folder, files, ordered)
        yield Checkpoint(folder, "Orbax", step_of(folder.partition(TEMPORARY)[0]), files, marks, reason)


def _above(folder: str) -> Iterator[str]:
    """Yield the folders that a folder is in."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _reason(listing: Listing, folder: str, files: Sequence[str], names: Sequence[str]) -> str:
    if TEMPORARY in folder:
        return "Orbax has not renamed it yet"
    if f"{folder}/{COMMITTED}" in files:
        return ""
    has_commit_files = any(name.endswith(f"/{COMMITTED}") for name in files)
    metadata = f"{folder}/{METADATA}"
    if not has_commit_files and metadata in files and _is_finished(listing, metadata):
        place = bisect_left(names, f"{folder}{TEMPORARY}")
        renaming = any(name.startswith(f"{folder}{TEMPORARY}") for name in names[place : place + 1])
        return "Orbax is renaming it" if renaming else ""
    return f"it has no {COMMITTED}"


def _is_finished(listing: Listing, name: str) -> bool:
    try:
        metadata = decode(listing.read(name, LARGEST_METADATA) or b"{}", StepMetadata)
    except DecodeError:
        return False
    return metadata.commit_timestamp_nsecs is not None


def _step_folder(name: str) -> str:
    """Return the folder of the checkpoint that a file shows there is; empty for other files."""
    above, checkpoints, below = name.partition(FOLDER)
    *parts, file = below.split("/")
    inner = next((count for count, part in enumerate(parts) if _FOLDERS.fullmatch(part)), None)
    old_array = file == ".zarray" and any(part.isdigit() for part in parts)
    temporary = any(TEMPORARY in part for part in parts)
    if file not in _FILES and inner is None and not old_array and not temporary:
        return ""
    count = next((number for number, part in enumerate(parts[:inner]) if _is_own(part)), None)
    depth = count + 1 if count is not None else len(parts) if inner is None else inner
    return "/".join([f"{above}{checkpoints}"[:-1], *parts[:depth]])


def _is_own(part: str) -> bool:
    return TEMPORARY in part or _STEP.fullmatch(part) is not None


_DISTRIBUTED_PART = ".distcp"
_METADATA = ".metadata"


def read_pytorch(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the distributed checkpoints among some names."""
    folders: dict[str, list[str]] = {
        name.rpartition("/")[0]: [] for name in sorted(names) if name.endswith(_DISTRIBUTED_PART)
    }
    for name in names:
        if (folder := name.rpartition("/")[0]) in folders:
            folders[folder].append(name)
    for folder, files in sorted(folders.items()):
        mark = f"{folder}/{_METADATA}"
        marks = (mark,) if mark in files else ()
        reason = "" if marks else f"its {_METADATA} is missing"
        if marks and listing.generation(marks) < listing.generation(set(files) - {mark}):
            reason = f"its {_METADATA} is older than its parts"
        yield Checkpoint(folder, "PyTorch", step_of(folder), tuple(files), marks, reason)


_PROGRAMS = ("saved_model.pb", "saved_model.pbtxt")
_VARIABLES = "variables/variables"


def read_saved_model(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the SavedModels among some names."""
    ordered = sorted(names)
    for folder in sorted({folder for folder in map(_model_folder, names) if folder}):
        files = below(ordered, folder)
        programs = [f"{folder}{program}" for program in _PROGRAMS if f"{folder}{program}" in files]
        variables = [name for name in files if name.startswith(f"{folder}{_VARIABLES}.")]
        reason = missing(f"{folder}{_VARIABLES}", variables) if variables else ""
        if not programs:
            reason = "its saved_model.pb is missing"
        name = folder[:-1]
        yield Checkpoint(name, "SavedModel", step_of(name), tuple(files), tuple(programs), reason)


def _model_folder(name: str) -> str:
    """Return the folder of the SavedModel that a file shows there is, with its slash; empty for others."""
    folder, _, file = name.rpartition("/")
    if file in _PROGRAMS:
        return f"{folder}/"
    shard = SHARD.fullmatch(name)
    return (
        shard["checkpoint"].removesuffix(_VARIABLES) if shard and _is_variables(shard["checkpoint"]) else ""
    )


def _is_variables(checkpoint: str) -> bool:
    return checkpoint.endswith(f"/{_VARIABLES}")


READERS = (
    read_orbax,
    read_saved_model,
    read_pytorch,
    read_tensorflow,
    read_files,
)
"""Orbax first, whose folders may hold a file `checkpoint`; a SavedModel has files of TensorFlow's format."""
LOOKS = 10
"""Listings after which a bucket counts as one that changes faster than it is read."""


def checkpoints_in(listing: Listing) -> list[Checkpoint]:
    """Return the checkpoints that a listing shows, complete or not; raises GoneError."""
    names = dict.fromkeys(name for name in listing.objects if FOLDER in name)
    checkpoints: list[Checkpoint] = []
    for read in READERS:
        for checkpoint in list(read(listing, names.keys())):
            checkpoints.append(checkpoint)
            for file in checkpoint.files:
                names.pop(file, None)
    return checkpoints


def last_committed(bucket: Bucket, folder: str, warn: Report = silent) -> str:
    """Return the committed checkpoint of a folder that was written last, without its folder; '' for none."""
    for _ in range(LOOKS):
        listing = Listing(bucket, bucket.objects(folder), warn)
        try:
            committed = [checkpoint for checkpoint in checkpoints_in(listing) if not checkpoint.reason]
        except GoneError as error:
            gone = error
            continue
        newest = max(committed, key=lambda checkpoint: listing.generation(checkpoint.files), default=None)
        return newest.label if newest else ""
    warn(f"{gone} keeps changing.")
    return ""


MOST_HELD = 64 << 20
"""Bytes of small objects that are held: each is read once."""
FOLDER = "/checkpoints/"
"""What the names of all checkpoints have; elsewhere a file is a file."""


class GoneError(Exception):
    """An object has been replaced or deleted since it was listed: another listing knows more."""


class Listing:
    """The objects of a run at one moment."""

    def __init__(self, bucket: Bucket, objects: Iterable[Object], warn: Report = silent) -> None:
        """`warn` gets a line about each small object that is not what its name says."""
        self._bucket = bucket
        self._warn = warn
        self.objects: Mapping[str, Object] = {item.name: item for item in objects if item.name[-1:] != "/"}
        """Every file by its name, in the order of names."""
        self.contents: dict[str, bytes] = {}
        """What was read of them."""
        self._held = 0

    @property
    def bucket_name(self) -> str:
        return self._bucket.name

    def read(self, name: str, most: int) -> bytes | None:
        """Return the bytes of an object, or None after a warning if it is too large; raises GoneError.

        So it is if all that were read before are too large together.
        """
        try:
            if name not in self.contents:
                item = self.objects[name]
                if item.size > MOST_HELD - self._held:
                    raise BadObjectError(name, f"is one of those with more than {MOST_HELD:,} bytes together")
                self.contents[name] = self._bucket.read_listed(item, most)
                self._held += item.size
            return self.contents[name]
        except BadObjectError as error:
            self._warn(error.message)
            return None
        except NotFoundError as error:
            raise GoneError(name) from error

    def generation(self, names: Iterable[str]) -> int:
        """Return the newest generation of some objects, by which the bucket orders what is written."""
        return max((self.objects[name].generation for name in names if name in self.objects), default=0)
