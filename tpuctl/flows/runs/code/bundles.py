"""Packs the code of a run into one archive, named by the hash of its content, in flat memory.

- Checks lock file and wheels, and names packages that come from elsewhere than the index.
- Finds secrets in the files of a bundle: credentials that came along with a folder are refused.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import re
import shlex
import tarfile
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import programs
from tpuctl.flows.runs.code.programs import Program
from tpuctl.flows.runs.code.project_files import Left, ProjectFiles
from tpuctl.host.worker import requirements
from tpuctl.host.worker.preparation.tar_files import Member, TarReader
from tpuctl.host.worker.records import SCRIPT
from tpuctl.job_header import Header
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError
from tpuctl.masking import credential_kind, is_settings_file, secrets_in
from tpuctl.object_content import Content, ContentDigest

if TYPE_CHECKING:
    from typing_extensions import Buffer


LARGEST = 16 << 20
"""Bytes of a file that lists packages."""
HINT = (
    "Make it with 'uv pip compile --generate-hashes' or 'pip-compile --generate-hashes --no-emit-index-url'."
)


def files(root: Path, header: Header) -> list[Path]:
    """Return the lock file below `root` of a header, if it names one, to be packed with the script.

    Raises UsageError for a missing file and for a line that is not a requirement with a version and hashes.
    """
    if not header.tpuctl.requirements:
        return []
    path = root.resolve() / header.tpuctl.requirements
    _locked(path)
    return [path]


def locked(root: Path, header: Header) -> list[str]:
    """Return the names of the distributions in the lock file of a header; none without one."""
    return [requirement.name for path in files(root, header) for requirement in _locked(path)]


def _locked(path: Path) -> Sequence[requirements.Requirement]:
    try:
        return requirements.parse_lock(text(path, "lock file", HINT))
    except requirements.RequirementError as error:
        raise UsageError(f"The lock file {path} is wrong, {error}.", hint=HINT) from error


def text(path: Path, kind: str, hint: str = "") -> str:
    """Return the text of a file that lists packages; raises UsageError that calls it a `kind`."""
    try:
        content = _content(path).decode()
    except OSError as error:
        raise UsageError(f"The {kind} {path} cannot be read: {error.strerror}.", hint=hint) from error
    except NotAFileError as error:
        raise UsageError(f"The {kind} {path} {error}.", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The {kind} {path} is not a text file.", hint=hint) from error
    if "\0" in content:
        raise UsageError(f"The {kind} {path} is not a text file.", hint=hint)
    return content


def _content(path: Path) -> bytes:
    """Return what a file holds, and nothing of a pipe or a device, to which a link may lead."""
    real = Path(os.path.realpath(path))
    with ConfinedFolder(real.parent) as folder, folder.open([real.name]) as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def wheelhouse(root: Path, folder: Path | None) -> str:
    """Return the name in the bundle of a folder of wheels below `root`; raises UsageError for any other."""
    if folder is None:
        return ""
    wheels, root = folder.parent.resolve() / folder.name, root.resolve()
    if not wheels.is_dir() or not any(path.suffix == ".whl" for path in wheels.iterdir()):
        raise UsageError(f"{folder} is no folder with wheels.", hint=_DOWNLOAD.format(folder=folder))
    if wheels == root or not wheels.is_relative_to(root):
        raise UsageError(
            f"{folder} is not below the script's folder {root}.",
            hint="Move it there: it travels with the code.",
        )
    if others := [path.name for path in sorted(wheels.iterdir()) if path.suffix != ".whl"]:
        raise UsageError(f"{folder} holds {others[0]}, which is no wheel.", hint="Leave wheels there only.")
    return wheels.relative_to(root).as_posix()


_DOWNLOAD = (
    "For a host with Python 3.10: pip download --dest {folder} --only-binary=:all: --python-version 3.10"
    " --platform manylinux2014_x86_64 PACKAGE"
)


def direct_references(header: Header) -> list[str]:
    """Return a sentence for each dependency that hosts install from a URL."""
    parsed = [requirements.parse(dependency) for dependency in header.dependencies]
    return [f"Hosts install {dependency.masked}" for dependency in parsed if dependency.url]


LONGEST = 1024 * 1024
"""Most bytes of a file that is read: longer ones are data."""
MOST_PLACES = 3
"""Places that are named; the others are counted."""
ADVICE = "Pass secrets in variables instead: --secret NAME."


def check_bundle(code: Bundle, include: Collection[Path], root: Path) -> list[str]:
    """Return warnings about secrets in a bundle's files, which everybody sees who can read the bucket.

    `root` is the script's folder. Raises UsageError for a file with credentials that is in the bundle with
    its folder; a file that `include` names itself is meant.
    """
    named = {_name(path, root) for path in include if path.is_file()}
    warnings: list[str] = []
    places: list[str] = []
    for member, stream in code.members():
        name = member.name
        content = stream.read(LONGEST + 1)
        kind = "" if name == code.script else credential_kind(name, content[:LONGEST])
        if kind and name not in named:
            raise UsageError(
                f"{name} holds {kind}, and would be stored in the bucket with its folder.",
                hint=f"Move it elsewhere. {ADVICE} Or name the file itself: --include {shlex.quote(name)}",
            )
        if kind:
            warnings.append(f"Warning: {name} holds {kind}, and is stored in the bucket. {ADVICE}")
        else:
            places += _places(name, content)
    return warnings + _warning_of(places)


def _name(file: Path, root: Path) -> str:
    """Return a file's name in the bundle: links in it keep their names."""
    return (file.parent.resolve() / file.name).relative_to(root.resolve()).as_posix()


def _places(name: str, content: bytes) -> Iterator[str]:
    if len(content) > LONGEST or b"\0" in content:
        return
    text = content.decode(errors="replace")
    for secret in secrets_in(text, is_code=not is_settings_file(name), is_told=True):
        line = text.count("\n", 0, secret.start) + 1
        yield f"{name}, line {line}, which looks like {secret.kind}"


def _warning_of(places: list[str]) -> list[str]:
    if not places:
        return []
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    listed = "; ".join(places[:MOST_PLACES])
    return [f"Warning: the bucket gets secrets in the script's files: {listed}{more}. {ADVICE}"]


LIMIT = 250_000_000
"""Bytes of all files of a run's code, unless the user says otherwise."""
IN_MEMORY = 4 * 1024 * 1024
"""Bytes of an archive up to which it needs no file."""
PART = 1024 * 1024
"""Bytes that are read at once."""
LEVEL = 6
"""Of compression: 9 takes three times as long for one percent."""
MOST_NAMED = 3
"""Files that are named where there is too much."""

Report = Callable[[str, int, int], None]
"""Takes what is done, how much of it, and the total, in megabytes."""


@dataclass(frozen=True)
class Bundle:
    """A tar.gz of a program and the files it needs; the same files give the same bytes."""

    archive: IO[bytes]
    """A temporary file that ends with this object."""
    sha256: str
    content: Content
    """Size and checksum of the archive."""
    unpacked_size: int
    """Bytes of the tar in it."""
    script: str
    """The script's name in the archive; name of a module, or of a command."""
    count: int
    """Files in it."""
    files_size: int
    """Their bytes."""
    kind: str = SCRIPT
    directory: str = ""
    """Working folder in it; empty for its own."""
    notes: tuple[str, ...] = ()
    """Sentences about what it lacks."""
    names: Collection[str] = ()
    """Of its files, where it was packed here."""

    def __post_init__(self) -> None:
        """Have the file closed with this object."""
        weakref.finalize(self, self.archive.close)

    @property
    def data(self) -> bytes:
        """The archive; for small ones."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        """Yield the archive's bytes in parts."""
        self.archive.seek(0)
        while part := self.archive.read(PART):
            yield part

    def members(self) -> Iterator[tuple[Member, BinaryIO]]:
        """Yield each file with its content, which can be read until the next one is asked for."""
        self.archive.seek(0)
        with gzip.GzipFile(fileobj=self.archive, mode="rb") as unpacked:
            reader = TarReader(cast(BinaryIO, unpacked))
            for member in reader:
                yield member, cast(BinaryIO, reader)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and whole content of each file."""
        yield from ((member.name, stream.read()) for member, stream in self.members())


def pack(
    program: Program,
    include: Sequence[Path] = (),
    limit: int = LIMIT,
    report: Report | None = None,
    words: Sequence[str] = (),
    made: Mapping[str, bytes] = MappingProxyType({}),
) -> Bundle:
    """Pack a program's project, or a lone script with the modules in its folder that it imports.

    Besides the files and folders of `include`, and the files that `words` of the command line name;
    `made` are contents of more files.

    Raises UsageError for a missing file, one outside the folder, a link of a lone script's that leads out of
    it, and files of more than `limit` bytes.
    """
    project = ProjectFiles(program.root)
    files = {name: file for name, file in program.files(project).items() if name not in made}
    left, project.left = project.left, Left()
    for path in include:
        files.update(project.below(path, is_whole=program.is_project))
    named, notes = programs.named_files(program, words, set(files))
    for path in named:
        files.update(project.below(path))
    sizes = {name: project.size(file) for name, file in files.items()}
    if sum(sizes.values()) > limit:
        raise _too_large(program, sizes, limit)
    notes += [*_notes(left, files, program), *_left_of_include(project.left, files)]
    try:
        return _packed(project, files, program, sizes, report, tuple(notes), made)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = f"There is no room in {tempfile.gettempdir()} for the archive of the script's files."
        raise UsageError(text, hint="Set TMPDIR to a folder on another disk.") from error


def _notes(left: Left, files: Collection[str], program: Program) -> Iterator[str]:
    """Yield sentences about what stays of a project; of what rules leave out, what the program names."""
    source = program.source() if left.ignored else b""
    ignored = [name for name in left.ignored if name not in files and _is_named(program.root / name, source)]
    if ignored:
        yield (
            f"Not sent, as .gitignore names it, though {program.script} does, too: {_listed(ignored)}."
            f" If the run reads it: --include {shlex.quote(ignored[0])}"
        )
    credentials = [name for name in left.credentials if name not in files]
    if credentials:
        yield f"Not sent, as such files hold credentials: {_listed(credentials)}. Pass secrets by --secret."
    if left.links:
        yield f"Not sent, as a link leads out of the project: {_listed(left.links)}."
    if left.submodules:
        yield f"Nothing is in the submodule {_listed(left.submodules)}: git submodule update --init"


def _is_named(file: Path, source: bytes) -> bool:
    """Return whether a program has the name of a file, such as train.bin, as a word."""
    name = re.escape(os.fsencode(file.name))
    return bool(file.suffix and re.search(rb"(?<![\w.-])%s(?![\w.-])" % name, source)) and file.is_file()


def _left_of_include(left: Left, files: Collection[str]) -> Iterator[str]:
    ignored = [name for name in left.ignored if name not in files]
    if ignored:
        yield f"Not sent, as .gitignore names it: {_listed(ignored)}. Name it too: --include {ignored[0]}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _packed(
    project: ProjectFiles, files: Mapping[str, Path], program: Program, sizes: Mapping[str, int],
    report: Report | None, notes: tuple[str, ...], made: Mapping[str, bytes],
) -> Bundle:  # fmt: skip
    total, target = sum(sizes.values()), _Archive()
    try:
        with _ReportingGzip(target, total, report if total > IN_MEMORY else None) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name in sorted(files, key=lambda name: name.split("/")):
                    project.add(archive, name, files[name])
                for name, content in sorted(made.items()):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
            unpacked_size = packed.tell()
    except BaseException:
        target.file.close()
        raise
    return Bundle(
        target.file, target.sha256.hexdigest(), target.content.content(), unpacked_size, program.script,
        len(files), total, program.kind, program.directory, notes, files.keys() | made.keys(),
    )  # fmt: skip


class _ReportingGzip(gzip.GzipFile):
    """Compresses, and reports each megabyte that it took."""

    def __init__(self, target: io.RawIOBase, total: int, report: Report | None) -> None:
        self._taken, self._total, self._report = 0, total, report
        super().__init__(fileobj=target, mode="wb", mtime=0, compresslevel=LEVEL)

    def write(self, data: Buffer) -> int:
        """Compress bytes and return their number."""
        count = super().write(data)
        before, self._taken = self._taken // 1_000_000, self._taken + count
        if self._report and self._taken // 1_000_000 > before:
            total = self._total // 1_000_000
            self._report("MB of code packed", min(self._taken // 1_000_000, total), total)
        return count


class _Archive(io.RawIOBase):
    """Writes to a temporary file and computes what its bytes are named and checked by."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  the bundle closes it
        self.sha256 = hashlib.sha256()
        self.content = ContentDigest()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        view = bytes(data)
        self.sha256.update(view)
        self.content.update(view)
        return self.file.write(view)


def _too_large(program: Program, sizes: Mapping[str, int], limit: int) -> UsageError:
    total = sum(sizes.values())
    largest = sorted((name for name in sizes if sizes[name] > total / 100), key=lambda name: -sizes[name])
    largest = largest[:MOST_NAMED] or [max(sizes, key=lambda name: sizes[name])]
    named = ", ".join(f"{name} ({sizes[name] / 1e6:,.0f} MB)" for name in largest)
    owner = "project" if program.is_project else "script"
    return UsageError(
        f"The {owner}'s files are {total / 1e6:,.0f} MB, and {limit / 1e6:,.0f} MB are the most."
        f" The largest: {named}.",
        hint="Leave them out by .tpuctlignore, upload data with 'tpuctl data upload', or pass"
        f" --code-limit {-(-total // 1_000_000)}.{' --root names another folder.' * program.is_project}",
        largest=largest,
    )
