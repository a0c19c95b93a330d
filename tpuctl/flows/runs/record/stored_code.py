"""Reads what a run ran from the bucket: its code, verified by its hash, and the packages of its hosts."""

from __future__ import annotations

import gzip
import hashlib
import re
import tempfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from tpuctl import job_header
from tpuctl.bucket_layout import bundle, gs
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.runs.code import programs
from tpuctl.flows.runs.code.bundles import IN_MEMORY, PART, Bundle
from tpuctl.flows.runs.code.bundles import LARGEST as LARGEST_LOCK
from tpuctl.flows.runs.code.project_files import MOST_FILES
from tpuctl.flows.runs.stored_attempt import find_record
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker import requirements
from tpuctl.host.worker.preparation.tar_files import FILE, TarError, TarReader, TooMuchError
from tpuctl.host.worker.records import COMMAND, MODULE
from tpuctl.job_header import Header
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import Run, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

_OUTSIDE = frozenset({"", ".", ".."})
"""Parts of a path that leads elsewhere, as host/worker/preparation/steps.py refuses it."""
LARGEST, RATIO, LEAST = 4 << 30, 250, 1 << 30
"""Bytes that an archive may unpack to, how many times its own size, and what it may whatever its size is."""
LONGEST_NAMES = 16 << 20
"""Characters of all names in an archive."""


def fetch(bucket: Bucket, record: Run) -> Bundle:
    """Return the code of a run, verified by its hash.

    Raises NotFoundError where the bucket has it no more, StateError where it has other bytes, or no code.
    """
    name = bundle(record.bundle_sha256)
    item = bucket.stat(name)
    if item is None:
        commit = f"Its commit was {record.git.commit}. " if record.git else ""
        raise NotFoundError(
            f"The code of run '{record.run}' was deleted: {gs(bucket.name, name)} does not exist.",
            hint=f"{commit}Submit the script from your own files: tpuctl submit",
            run=record.run,
        )
    archive: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  the bundle closes it
    try:
        return _verified(bucket, record, item, archive)
    except BaseException:
        archive.close()
        raise


def _verified(bucket: Bucket, record: Run, item: Object, archive: IO[bytes]) -> Bundle:
    most = _most_unpacked(record, item.size)
    if item.size > most + most // 1000 + PART:
        raise _damaged(bucket, record, "is larger than the code that the record names")
    digest, stream = hashlib.sha256(), bucket.stream(item, PART)
    while part := stream.read(PART):
        digest.update(part)
        archive.write(part)
    if digest.hexdigest() != record.bundle_sha256:
        raise _damaged(bucket, record, "does not hold the code that it is named by")
    try:
        count, size, unpacked = _measured(archive, most)
    except (TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(bucket, record, f"is no archive of code: {error}") from error
    return Bundle(
        archive, record.bundle_sha256, item.content, unpacked, record.script, count, size, record.kind,
        record.directory,
    )  # fmt: skip


def _most_unpacked(record: Run, size: int) -> int:
    """Return the bytes that an archive of so many bytes may unpack to: a small one to no more than 1 GiB."""
    return min(record.unpacked_size or LARGEST, max(RATIO * size, LEAST), LARGEST)


def _measured(archive: IO[bytes], most: int) -> tuple[int, int, int]:
    """Return the number of files in an archive, their bytes, and those of the tar file.

    Raises what a damaged archive raises, and TarError for one that is not like those that `submit` packs.
    """
    names, size, length = set[str](), 0, 0
    archive.seek(0)
    with gzip.GzipFile(fileobj=archive, mode="rb") as unpacked:
        for member in TarReader(cast(BinaryIO, unpacked), most):
            if member.kind != FILE or not _OUTSIDE.isdisjoint(member.name.split("/")):
                raise TarError("it has a member that is no file inside it")
            if member.name in names:
                raise TarError("it has a file twice")
            names.add(member.name)
            size, length = size + member.size, length + len(member.name)
            if len(names) > MOST_FILES or length > LONGEST_NAMES:
                raise TarError("it has too many files")
        while unpacked.read(PART):
            if unpacked.tell() > most:
                raise TooMuchError(f"it unpacks to more than {most} bytes")
        return len(names), size, unpacked.tell()


def _damaged(bucket: Bucket, record: Run, how: str) -> StateError:
    return StateError(
        f"{gs(bucket.name, bundle(record.bundle_sha256))} {how}.",
        hint="Submit the script from your own files: tpuctl submit",
        run=record.run,
    )


def header_of(code: Bundle) -> Header:
    """Return the settings of a bundle's program; raises StateError without its file, UsageError."""
    names = list(programs.header_names(code.kind, code.script, code.directory))
    found = {
        member.name: stream.read()
        for member, stream in code.members()
        if member.name in (*names, programs.SETTINGS) and member.size <= job_header.LONGEST_SCRIPT
    }
    name = next((name for name in names if name in found), "")
    if not name and code.kind not in (MODULE, COMMAND):
        raise StateError(f"The code {code.sha256[:12]} has no script {code.script}.", hint="Submit it again.")
    return programs.read_settings(code.kind, found.get(name, b""), name, found.get(programs.SETTINGS, b""))


def locked(code: Bundle, record: Run) -> list[str]:
    """Return the names of the distributions in a run's lock file; none without one. Raises StateError."""
    texts = (
        stream.read()
        for member, stream in code.members()
        if member.name == record.requirements and member.size <= LARGEST_LOCK
    )
    try:
        return [each.name for each in requirements.parse_lock(next(texts, b"").decode())]
    except ValueError as error:
        raise StateError(
            f"The lock file {record.requirements} of run '{record.run}' is wrong: {error}.",
            hint="Submit the script from your own files: tpuctl submit",
        ) from error


_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")


@dataclass(frozen=True)
class Pins:
    """Versions that packages have to have."""

    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


def environment_of(run: StoredRun, verdict: Verdict | None) -> HostEnvironment | None:
    """Return what the first host of a run's last attempt had whose script started; None where none says so.

    Attempts after the verdict's do not count. Raises BadObjectError for an object that is no such record.
    """
    for number in reversed(run.attempt_numbers(verdict)):
        attempt = run.attempt(number)
        name = run.paths.environment(number, attempt.record.workers[0])
        record = find_record(run.bucket, name, HostEnvironment)
        if record:
            return record
    return None


def pins(run: StoredRun, header: Header, verdict: Verdict | None) -> Pins:
    """Return the versions of what was installed for a script, and of what its header asks for.

    None with a lock file or a folder of wheels, which pin by themselves. A package from a URL is as the
    header has it.
    """
    record = run.record
    if record.requirements or record.wheelhouse:
        return Pins({})
    environment = environment_of(run, verdict)
    if environment is None:
        note = f"Run '{run.name}' has no record of its packages: they are resolved anew."
        is_needed = bool(header.dependencies) and not record.pins
        return Pins(record.pins, (note,) if is_needed else ())
    asked = {requirement.name for requirement in map(requirements.parse, header.dependencies)}
    names = {*environment.installed, *asked.intersection(environment.image)}
    versions = environment.resolved
    pinned = {name: versions[name] for name in sorted(names) if name not in environment.urls}
    return Pins({name: version for name, version in pinned.items() if is_pin(name, version)})


def is_pin(name: str, version: str) -> bool:
    """Whether a name and a version from a host make a requirement, and no option of pip."""
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))
