"""What makes the result of a run again, besides what was asked.

- Finds the seeds of random numbers in what a script is started with.
- Defines what a run's hosts and its end add to its record: packages, and results by checksum.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from tpuctl import clock
from tpuctl.bucket_objects import (
    AttemptNumber,
    Count,
    Crc32c,
    Label,
    Line,
    PackageName,
    PackageVersion,
    PythonVersion,
    Sha256,
    Word,
)
from tpuctl.masking import words_of

MOST_SEEDS = 100
_OPTION = re.compile(r"-{0,2}(?P<name>[A-Za-z_][\w.-]{0,99})(?:=(?P<value>.{1,40}))?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}")


def seeds_of(
    arguments: Sequence[str], variables: Mapping[str, str], hidden: Collection[str] = ()
) -> dict[str, str]:
    """Return option or variable -> seed: `--seed 7`, `--data-seed=7`, `seed=7`, PYTHONHASHSEED.

    A seed is a whole number, and `random` for PYTHONHASHSEED. `hidden` variables are secrets.
    """
    seeds = {}
    for argument, after in itertools.pairwise([*arguments, ""]):
        match = _OPTION.fullmatch(argument)
        if not match or not _names_a_seed(match["name"]):
            continue
        is_word = match["value"] is None and not argument.startswith("-")
        value = "" if is_word else match["value"] or after
        if _NUMBER.fullmatch(value):
            seeds[argument.partition("=")[0]] = value
    for name, value in variables.items():
        if name not in hidden and _names_a_seed(name) and (_NUMBER.fullmatch(value) or value == "random"):
            seeds[name] = value
    return dict(sorted(seeds.items())[:MOST_SEEDS])


def _names_a_seed(name: str) -> bool:
    """Whether the last word of a name is seed, also of PYTHONHASHSEED."""
    words = words_of(name)
    return bool(words) and words[-1] in ("seed", "hashseed", "pythonhashseed", "randomseed")


MOST_PACKAGES = 5000
MOST_FILES = 10_000
"""Files that are listed with their checksums; the others are in the digest."""
MOST_BYTES = 4 << 20
"""Of the record of results, about."""
SCHEMA = 1

Versions = Annotated[dict[PackageName, PackageVersion], msgspec.Meta(max_length=MOST_PACKAGES)]
"""Package -> its version."""
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class HostEnvironment(msgspec.Struct, frozen=True):
    """environment.json of a worker: the Python and the packages that its script could import."""

    python: PythonVersion
    implementation: Label = ""
    system: Label = ""
    release: Label = ""
    """Of the system's kernel."""
    processor: Label = ""
    installed: Versions = {}
    """What was installed for the script."""
    image: Versions = {}
    """Everything else."""
    urls: Annotated[dict[PackageName, Line], msgspec.Meta(max_length=MOST_PACKAGES)] = {}
    """Where packages are from that come from no index, without passwords."""
    schema: int = SCHEMA

    @property
    def resolved(self) -> dict[str, str]:
        """The versions that the script imported: what was installed for it hides the image's."""
        return {**self.image, **self.installed}


class ResultFile(msgspec.Struct, frozen=True):
    """One object of a run's results, as the bucket lists it."""

    name: FileName
    """Below the run's folder."""
    bytes: Count
    crc32c: Crc32c | None
    """CRC-32C in base64; None where the bucket lists none."""
    md5: Label = ""
    """MD5 in base64; empty for objects that were composed of parts."""
    generation: Count = 0


class Results(msgspec.Struct, frozen=True):
    """results.json: checkpoints, outputs and TensorBoard's files of a run, when it had ended."""

    run: Label
    attempt: AttemptNumber
    """The last one."""
    outcome: Word
    listed: str
    """When, by the bucket's clock."""
    files: Count
    """All, also those that are not listed one by one."""
    bytes: Count
    digest: Sha256
    """Of names, sizes and checksums of all files: `digest_of`."""
    listed_files: Annotated[tuple[ResultFile, ...], msgspec.Meta(max_length=MOST_FILES)]
    """In the order of their names."""
    left_out: Count = 0
    """Files that are only in the digest."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise ValueError, which readers translate, for a time that no clock shows or a wrong count."""
        clock.parse(self.listed)
        if len(self.listed_files) + self.left_out != self.files:
            raise ValueError("its files are not as many as it says")

    @property
    def is_whole(self) -> bool:
        """Whether each file is listed."""
        return not self.left_out


def digest_of(files: Iterable[ResultFile]) -> str:
    """Return the SHA-256 of files in the order of their names: a JSON array of each, name, bytes and CRC."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name.encode("utf-8", "surrogatepass")):
        digest.update(msgspec.json.encode((file.name, file.bytes, file.crc32c)) + b"\n")
    return digest.hexdigest()


def first_that_fit(files: Iterable[ResultFile]) -> Iterator[ResultFile]:
    """Yield as many files as one record holds, from the first."""
    size = 0
    for number, file in enumerate(files):
        size += len(msgspec.json.encode(file)) * 2  # indented as it is stored
        if number == MOST_FILES or size > MOST_BYTES:
            return
        yield file
