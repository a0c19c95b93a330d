"""Checks whether a folder is the run that it says, by the checksums in it and by the bucket if it answers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tpuctl import runs
from tpuctl.bucket_layout import RunPaths, bundle
from tpuctl.bucket_objects import BadObjectError
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.runs.code.bundles import PART
from tpuctl.flows.runs.local_copy import joined_logs
from tpuctl.flows.runs.stored_attempt import joined_pieces, left_behind
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError, UnsafeNameError, local_parts
from tpuctl.local.staged_folder import STAGING
from tpuctl.object_content import METADATA, Content, ContentDigest
from tpuctl.provenance import Results, digest_of
from tpuctl.runs import Run, Verdict, decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

CHANGED, MISSING, EXTRA, WRONG = "changed", "missing", "extra", "wrong"
FOLDER, BUCKET = "folder", "bucket"


@dataclass(frozen=True)
class Difference:
    """Something that is not as the record has it."""

    name: str
    """A file below the folder, or `code` or `dataset`."""
    kind: str
    """CHANGED, MISSING, EXTRA or WRONG."""
    detail: str
    by: str
    """FOLDER or BUCKET: whose word it is."""


@dataclass(frozen=True)
class Check:
    """What was compared with what, or why it was not."""

    subject: str
    by: str
    """FOLDER, BUCKET, or empty for what was not checked."""
    detail: str


@dataclass(frozen=True)
class Verification:
    """What is known of a folder."""

    run: str
    outcome: str
    files: int
    """That are here."""
    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]


Record = TypeVar("Record", Run, Verdict, Results)

RECORD, VERDICT, RESULTS = "run.json", "verdict.json", "results.json"
CHANGING = ("notes.json",)
"""What people change at any time."""
RESULT_FOLDERS = ("checkpoints", "outputs", "tensorboard")
OWN_FOLDERS = ("attempts", "logs")
"""Beside the results: records and logs, and logs that `pull` has joined."""
OWN_FILES = (RECORD, VERDICT, RESULTS, "stop.json", *CHANGING)


def verify(
    folder: Path, bucket: Bucket | None, data_bucket: Bucket | None, why_not: str = ""
) -> Verification:
    """Compare a folder that `pull` has filled with its record, and with the bucket, unless that is None.

    `why_not` says why there is no bucket. Raises UsageError for a folder without a record of a run.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", hint="Name one that 'tpuctl pull' has filled.")
    try:
        with ConfinedFolder(folder) as files:
            return _Verifier(folder, files).verify(bucket, data_bucket, why_not)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}.", hint="Name another folder."
        ) from error


class _Verifier:
    """Gathers what was checked and what differs."""

    def __init__(self, folder: Path, files: ConfinedFolder) -> None:
        self._folder = folder
        self._files = files
        self._here = sorted(_names(folder))
        self._contents: dict[str, Content | None] = {}
        self._checks: list[Check] = []
        self._differences: dict[tuple[str, str], Difference] = {}

    def verify(self, bucket: Bucket | None, data_bucket: Bucket | None, why_not: str) -> Verification:
        """Check everything that can be checked."""
        record = self._read(RECORD, Run)
        if record is None:
            raise UsageError(
                f"{self._folder / RECORD} is not there: the folder is no copy of a run.",
                hint="Name a folder that 'tpuctl pull' has filled.",
            )
        verdict, results = self._checked(VERDICT, Verdict, record), self._checked(RESULTS, Results, record)
        self._check_results(results)
        self._check_others(results)
        self._check_logs()
        if bucket is None:
            self._leave_out(why_not or "not asked", record)
        else:
            self._check_bucket(bucket, data_bucket or bucket, record)
        differences = tuple(self._differences[key] for key in sorted(self._differences))
        return Verification(
            record.run, verdict.outcome if verdict else "", len(self._here), tuple(self._checks), differences
        )

    def _read(self, name: str, kind: type[Record]) -> Record | None:
        """Return a record in the folder; None without it. Raises BadObjectError."""
        try:
            with self._files.open((name,)) as stream:
                data = stream.read(runs.LARGEST[kind] + 1)
        except (FileNotFoundError, NotAFileError):
            return None
        if len(data) > runs.LARGEST[kind]:
            raise BadObjectError(name, "is larger than any such record")
        return decode(data, kind, name)

    def _checked(self, name: str, kind: type[Record], record: Run) -> Record | None:
        """Return another record of the run; one of another run is a difference."""
        try:
            other = self._read(name, kind)
        except BadObjectError as error:
            self._differ(name, WRONG, error.message, FOLDER)
            return None
        if other is None:
            self._checks.append(Check(name, "", "it is not in the folder"))
        elif other.run != record.run:
            self._differ(name, WRONG, f"is of run {other.run}, and run.json of {record.run}", FOLDER)
        return other

    def _check_results(self, results: Results | None) -> None:
        """Compare the files of the results with their checksums."""
        if results is None:
            return
        if results.is_whole and digest_of(results.listed_files) != results.digest:
            self._differ(RESULTS, WRONG, "its files do not have the digest that it says", FOLDER)
        for file in results.listed_files:
            if file.crc32c:
                self._compare(file.name, Content(file.bytes, file.crc32c), FOLDER)
        count = _count(len(results.listed_files))
        self._checks.append(Check("results", FOLDER, f"{count}, by the checksums in {RESULTS}"))
        if results.left_out:
            more = f"{_count(results.left_out)} more: {RESULTS} does not list them"
            self._checks.append(Check("results", "", more))

    def _check_logs(self) -> None:
        """Compare each log with the pieces that it is joined from."""
        pieces = joined_logs(tuple(name.split("/")) for name in self._here)
        for log, chunks in pieces.items():
            try:
                self._compare("/".join(log), self._joined(chunks), FOLDER)
            except NotAFileError as error:
                self._differ("/".join(log), WRONG, f"a piece of it {error}", FOLDER)
        for name in self._here:
            parts = tuple(name.split("/"))
            if parts[0] == "logs" and parts not in pieces:
                self._differ(name, EXTRA, "there are no pieces of it", FOLDER)
        if pieces:
            self._checks.append(Check("logs", FOLDER, f"{_count(len(pieces))}, by the pieces in attempts/"))

    def _joined(self, chunks: Iterable[Sequence[str]]) -> Content:
        """Return the content of files one after the other; raises NotAFileError."""
        digest = ContentDigest()
        for chunk in chunks:
            with self._files.open(chunk) as stream:
                while block := stream.read(PART):
                    digest.update(block)
        return digest.content()

    def _check_others(self, results: Results | None) -> None:
        """Name files that are none of the run."""
        listed = {file.name for file in results.listed_files} if results else set()
        for name in self._here:
            top = name.partition("/")[0]
            if top in RESULT_FOLDERS and "/" in name:
                if results and results.is_whole and name not in listed:
                    self._differ(name, EXTRA, "the run has no such file", FOLDER)
            elif name not in OWN_FILES and not (top in OWN_FOLDERS and "/" in name):
                self._differ(name, EXTRA, "the run has no such file", FOLDER)

    def _leave_out(self, reason: str, record: Run) -> None:
        """Say what only the bucket can tell."""
        subjects = ["run.json, verdict and attempts", f"code {record.bundle_sha256[:12]}"]
        subjects += [f"dataset {record.dataset}"] if record.dataset else []
        self._checks += [Check(subject, "", reason) for subject in subjects]

    def _check_bucket(self, bucket: Bucket, data_bucket: Bucket, record: Run) -> None:
        try:
            self._check_objects(bucket, record)
            self._check_code(bucket, record)
            self._check_dataset(data_bucket, record)
        except TpuctlError as error:
            self._leave_out(error.message, record)

    def _check_objects(self, bucket: Bucket, record: Run) -> None:
        """Compare each file with the object that it is a copy of."""
        paths = RunPaths(record.run)
        listed = bucket.objects(paths.folder, more=METADATA)
        left = left_behind(listed, joined_pieces(listed))
        objects = {item.name.removeprefix(paths.folder): item for item in listed if item.name not in left}
        if not objects:
            self._checks.append(Check("files", "", f"gs://{bucket.name} has no run {record.run} any more"))
            return
        for name in self._here:
            if name in objects and name not in CHANGING:
                self._compare(name, objects[name].content, BUCKET)
        for name in objects.keys() - set(self._here) - set(CHANGING):
            if name.partition("/")[0] not in RESULT_FOLDERS:
                self._differ(name, MISSING, "the bucket has it", BUCKET)
        count = _count(len(objects.keys() & set(self._here)))
        self._checks.append(Check("files", BUCKET, f"{count}, by their objects in gs://{bucket.name}"))

    def _check_code(self, bucket: Bucket, record: Run) -> None:
        item = bucket.stat(bundle(record.bundle_sha256))
        subject = f"code {record.bundle_sha256[:12]}"
        if item is None:
            self._differ("code", MISSING, "the bucket has it no more", BUCKET)
            return
        digest, stream = hashlib.sha256(), bucket.stream(item, PART)
        while part := stream.read(PART):
            digest.update(part)
        if digest.hexdigest() != record.bundle_sha256:
            self._differ("code", CHANGED, "the bucket's has another hash", BUCKET)
        self._checks.append(Check(subject, BUCKET, "by its SHA-256"))

    def _check_dataset(self, bucket: Bucket, record: Run) -> None:
        if record.dataset is None:
            return
        try:
            manifest = find_manifest(bucket, DatasetRef(record.dataset.name, record.dataset.version))
        except BadObjectError as error:
            self._differ("dataset", CHANGED, error.message, BUCKET)
            return
        if manifest is None:
            self._differ("dataset", MISSING, f"the bucket has no {record.dataset} any more", BUCKET)
        elif manifest.digest != record.dataset.manifest_sha256:
            self._differ("dataset", CHANGED, f"{record.dataset} has another content by now", BUCKET)
        self._checks.append(Check(f"dataset {record.dataset}", BUCKET, "by its manifest's digest"))

    def _compare(self, name: str, expected: Content, by: str) -> None:
        try:
            content = self._content(name)
        except UnsafeNameError as error:
            self._differ(name, MISSING, f"its name {error}", by)
            return
        if content is None:
            self._differ(name, MISSING, "it is not in the folder", by)
        elif difference := content.difference(expected):
            what, here, there = difference
            self._differ(name, CHANGED, f"{what} {here} here, {there} in the record", by)

    def _content(self, name: str) -> Content | None:
        """Return the content of a file in the folder, read once; None without such a file."""
        if name not in self._contents:
            parts = local_parts(name)
            try:
                with self._files.open(parts) as stream:
                    self._contents[name] = Content.of_stream(stream)
            except (FileNotFoundError, NotAFileError):
                self._contents[name] = None
        return self._contents[name]

    def _differ(self, name: str, kind: str, detail: str, by: str) -> None:
        self._differences.setdefault((name, kind), Difference(name, kind, detail, by))


def _count(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _names(folder: Path) -> Iterator[str]:
    """Yield the names of all files and links below a folder, but for what `pull` stages."""
    for place, folders, files in os.walk(folder):
        below = Path(place).relative_to(folder)
        if not below.parts and STAGING in folders:
            folders.remove(STAGING)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from ((below / name).as_posix() for name in (*files, *links))
