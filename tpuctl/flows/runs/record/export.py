"""Writes the archive of a run: code, arguments, packages, checksums; the same run gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from tpuctl import printable
from tpuctl.atomic_files import part_file
from tpuctl.bucket_layout import DATASETS
from tpuctl.config.files import FILE_NAME
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.progress import Report
from tpuctl.flows.runs import results
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.record import stored_code
from tpuctl.flows.runs.record.archive_text import (
    Contents,
    checksums,
    missing_arguments,
    missing_variables,
    readme,
    run_script,
)
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import UnsafeNameError, local_parts
from tpuctl.object_content import ContentDigest
from tpuctl.runs import Run, Verdict, encode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.data.output.manifest import Manifest


import re
from collections.abc import Iterable

from tpuctl.flows.runs.code.project_imports import imported_names
from tpuctl.flows.runs.record.stored_code import is_pin
from tpuctl.host.worker import requirements
from tpuctl.host.worker.records import CELLS_FILE, NOTEBOOK
from tpuctl.host.worker.requirements import Requirement, normalized
from tpuctl.job_header import Header
from tpuctl.provenance import HostEnvironment

OTHER_NAMES = {
    "cv2": "opencv-python",
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}
"""Module -> the package that has it, where that is called otherwise."""
SUBMIT_ANEW = "Submit the script from your own files: tpuctl submit"
MODE, EXECUTABLE = 0o644, 0o755
LONGEST_SOURCE, MOST_SOURCE = 1 << 17, 8 << 20
"""Bytes of a file of Python, and of all, whose imports are looked for: parsed it takes a thousandfold."""


@dataclass(frozen=True)
class Export:
    """An archive that was written."""

    path: Path
    size: int
    sha256: str
    files: int
    has_data: bool
    missing: tuple[str, ...]
    """What whoever runs it has to give: variables, arguments, the dataset."""


def export(
    run: StoredRun,
    verdict: Verdict,
    data_bucket: Bucket,
    path: Path,
    report: Report,
    *,
    with_data: bool = False,
) -> Export:
    """Write the archive of a run that has ended, complete or not at all.

    Raises NotFoundError where its code, or with `with_data` its dataset, is gone, StateError where one of
    them is not what the record says, or the record names files elsewhere, UsageError for a place that cannot
    be written.
    """
    record = run.record
    _check_paths(record)
    manifest = _manifest(data_bucket, run) if with_data else None
    code = stored_code.fetch(run.bucket, record)
    contents = Contents(
        record, verdict, stored_code.header_of(code), stored_code.environment_of(run, verdict),
        results.ensured(run.bucket, run.paths, verdict), manifest is not None, _hosts(run, verdict),
    )  # fmt: skip
    try:
        with part_file(path) as part, _Writer(part, record.run) as writer:
            _write(writer, contents, code)
            if manifest:
                report(f"packing the dataset {manifest.ref}")
                _write_data(writer, data_bucket, manifest)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path} cannot be written: {reason}.", hint="Name another file: --to") from error
    return Export(
        path, writer.size, writer.sha256, writer.files, manifest is not None, tuple(_missing(contents))
    )


def _hosts(run: StoredRun, verdict: Verdict) -> int:
    try:
        return len(run.attempt(verdict.attempt).record.workers)
    except NotFoundError:
        return 1  # it was stopped before it had an attempt


def _missing(contents: Contents) -> Iterator[str]:
    yield from missing_variables(contents.record, contents.header)
    yield from (f"argument {number}" for number in missing_arguments(contents.record))
    if contents.record.dataset and not contents.has_data:
        yield f"dataset {contents.record.dataset}"


def _write(writer: _Writer, contents: Contents, code: Bundle) -> None:
    record, sources, left = contents.record, list[bytes](), MOST_SOURCE
    for member, content in code.members():
        if PurePosixPath(member.name).name == FILE_NAME:
            continue  # who unpacks the archive has settings of their own, and the record has those of the run
        path = "/".join(("code", *_safe(member.name, record.run)))
        stream: IO[bytes] = content
        if member.name.endswith(".py") and member.size <= min(LONGEST_SOURCE, left):
            sources.append(content.read())
            left -= member.size
            stream = io.BytesIO(sources[-1])
        mode = EXECUTABLE if member.mode & stat.S_IXUSR else MODE
        writer.add_stream(path, member.size, stream, mode=mode)
    pinned = pinned_packages(record, contents.header, contents.environment, sources)
    writer.add("README.md", readme(contents, pinned.unnamed).encode())
    writer.add("requirements.txt", _lines(pinned.requirements))
    writer.add("constraints.txt", _lines(pinned.constraints))
    writer.add("run.sh", run_script(record, contents.header).encode(), mode=EXECUTABLE)
    if record.kind == NOTEBOOK:
        program = resources.files("tpuctl").joinpath("host/worker/job", CELLS_FILE)
        writer.add(CELLS_FILE, program.read_bytes())
    writer.add("record/run.json", _json(record))
    writer.add("record/verdict.json", _json(contents.verdict))
    if contents.environment:
        writer.add("record/environment.json", _json(contents.environment))
    if contents.results:
        writer.add("record/results.json", _json(contents.results))
        writer.add("record/results.md5", _lines(tuple(checksums(contents.results))))


def _lines(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _json(record: object) -> bytes:
    """Return a record as JSON that a terminal shows as it is."""
    return printable.json(encode(record).decode()).encode()


def _check_paths(record: Run) -> None:
    """Raise StateError for a lock file or a folder of wheels, which README.md names, outside of the code."""
    for name in (record.requirements, record.wheelhouse):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or printable.line(name) != name:
            raise StateError(
                f"The record of run '{record.run}' names {name!a}, which is no file of its code.",
                hint=SUBMIT_ANEW,
                run=record.run,
            )


def _safe(name: str, run: str) -> tuple[str, ...]:
    try:
        return local_parts(name, may_be_hidden=True)
    except UnsafeNameError as error:
        raise StateError(
            f"The code of run '{run}' has a file {name!a} that {error}.", hint="Submit it without that file."
        ) from error


def _manifest(bucket: Bucket, run: StoredRun) -> Manifest:
    """Return the manifest of a run's dataset, which has to be the one that the run used."""
    dataset = run.record.dataset
    if dataset is None:
        raise UsageError(f"Run '{run.name}' has no dataset.", hint="Leave --with-data out.")
    manifest = find_manifest(bucket, DatasetRef(dataset.name, dataset.version))
    if manifest is None or manifest.digest != dataset.manifest_sha256:
        how = "is not in the bucket any more" if manifest is None else "has another content by now"
        raise NotFoundError(
            f"The dataset {dataset} of run '{run.name}' {how}.", hint="Leave --with-data out.", run=run.name
        )
    return manifest


def _write_data(writer: _Writer, bucket: Bucket, manifest: Manifest) -> None:
    folder = manifest.ref.folder
    for item in bucket.objects(folder):
        parts = _safe(item.name.removeprefix(DATASETS), manifest.name)
        writer.add_object("/".join(("data", *parts)), bucket, item)


class _Writer:
    """A tar.gz without times, users and the name of its file."""

    def __init__(self, path: Path, top: str) -> None:
        self._top = top
        self._stream = path.open("xb")  # never through a link that another user plants
        self._gzip = gzip.GzipFile("", "wb", 6, self._stream, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._path = path
        self.files = self.size = 0
        self.sha256 = ""

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in (self._tar, self._gzip, self._stream):
            file.close()
        if kind is None:
            with self._path.open("rb") as stream:
                self.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            self.size = self._path.stat().st_size

    def add(self, name: str, data: bytes, *, mode: int = MODE) -> None:
        """Add a file."""
        self.add_stream(name, len(data), io.BytesIO(data), mode=mode)

    def add_object(self, name: str, bucket: Bucket, item: Object) -> None:
        """Add an object in flat memory; raises StateError for one that arrives changed."""
        stream = _Checked(bucket, item)
        self.add_stream(name, item.size, cast("IO[bytes]", stream))
        if stream.digest.content() != item.content:
            raise StateError(f"{item.name} arrived damaged.", hint="Run the command again.")

    def add_stream(self, name: str, size: int, stream: IO[bytes], *, mode: int = MODE) -> None:
        """Add a file of so many bytes in flat memory."""
        member = tarfile.TarInfo(f"{self._top}/{name}")
        member.size, member.mode, member.mtime = size, mode, 0
        self._tar.addfile(member, stream)
        self.files += 1


class _Checked:
    """Reads an object for a tar file, and computes its checksum on the way."""

    def __init__(self, bucket: Bucket, item: Object) -> None:
        self._stream = bucket.stream(item)
        self.digest = ContentDigest()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self.digest.update(data)
        return data


# Says which packages somebody else has to install: what the script needs, at the versions that it had.


@dataclass(frozen=True)
class PinnedPackages:
    """The lines of requirements.txt and constraints.txt."""

    requirements: tuple[str, ...]
    """What the script asks for, and what it imports of the image."""
    constraints: tuple[str, ...]
    """The version of every package that it could import: pip installs only what is required."""
    unnamed: tuple[str, ...] = ()
    """Packages without a line: they came from an address that only the host names, and from no index."""


def pinned_packages(
    record: Run, header: Header, environment: HostEnvironment | None, sources: Iterable[bytes]
) -> PinnedPackages:
    """Return the packages of a run; `sources` is its code, whose imports name packages of the image.

    Every line is a requirement of PEP 508 that the record or the header has, or a name with a version:
    anybody may have written what the host says. Raises StateError for a record that asks for something else.
    """
    versions = environment.resolved if environment else dict(record.pins)
    urls = environment.urls if environment else {}
    asked = [_requirement(text, record) for text in record.dependencies or header.dependencies]
    lines = {requirement.name: _pinned(requirement, versions) for requirement in asked}
    needed = {*(environment.installed if environment else ()), *record.pins}
    if environment:
        needed |= set(_imported(sources)) & environment.image.keys()
    unnamed = (needed & urls.keys()) - lines.keys()
    for name in needed - lines.keys() - unnamed:
        if name in versions and is_pin(name, versions[name]):
            lines[name] = f"{name}=={versions[name]}"
    constraints = (
        f"{name}=={version}"
        for name, version in sorted(versions.items())
        if name not in urls and is_pin(name, version)
    )
    pinned = tuple(line for _, line in sorted(lines.items()))
    return PinnedPackages(pinned, tuple(constraints), tuple(sorted(unnamed)))


def _requirement(text: str, record: Run) -> Requirement:
    try:
        return requirements.parse(text)
    except requirements.RequirementError as error:
        raise StateError(
            f"The record of run '{record.run}' is wrong: {error}.", hint=SUBMIT_ANEW, run=record.run
        ) from error


def _pinned(requirement: Requirement, versions: dict[str, str]) -> str:
    """Return a requirement at its version; a URL goes without user and password."""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    if requirement.url:
        url = re.sub("//[^/]*@", "//", requirement.url)
        if requirement.text.startswith("git+"):  # its distribution has perhaps another name
            return f"{url}{' ' * bool(marker)}{marker}"
        return f"{requirement.name}{extras} @ {url}{' ' * bool(marker)}{marker}"
    version = versions.get(requirement.name, "")
    if version and is_pin(requirement.name, version):
        return f"{requirement.name}{extras}=={version}{marker}"
    return requirement.text


def _imported(sources: Iterable[bytes]) -> Iterator[str]:
    """Yield the packages that code imports, by the names of its modules."""
    for source in sources:
        for name in imported_names(source):
            module = normalized(name.partition(".")[0])
            yield OTHER_NAMES.get(module, module)
