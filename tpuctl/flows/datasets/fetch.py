"""Fetches a public dataset: downloads or finds its files, verifies, unpacks, and renames the result.

NAME/                what `tpuctl data upload` reads; `.fetched.json` in it says what it was made from
.NAME.fetch/         beside it during a fetch, with the files so far: the next fetch resumes
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects import DecodeError, decode
from tpuctl.data.public import Form, PublicDataset, PublicFile
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError, UsageError
from tpuctl.local import private_folder
from tpuctl.local.confined_folder import NotAFileError, read_file

if TYPE_CHECKING:
    from tpuctl.cloud.downloads import Downloads

MARK = ".fetched.json"
"""Names the dataset in a folder that was fetched."""
UNKNOWN = 1 << 28
"""Bytes of the largest file whose published size is not known."""
_BLOCK = 1 << 20
_LARGEST_MARK = 1 << 16
_OFFLINE = "Without a network, take the files from a folder: --from FOLDER."

Phase = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Begins a step that takes time: `phase("kB of a.npz")` yields a function that takes a count and a total."""


class Fetched(msgspec.Struct, frozen=True):
    """A public dataset that is in a folder."""

    name: str
    files: dict[str, str]
    """The files it was made from, and their SHA-256."""
    unverified: tuple[str, ...] = ()
    """Those whose SHA-256 is not that of the published file."""


@dataclass(frozen=True)
class FetchResult:
    """A fetched dataset, and whether it was there before."""

    fetched: Fetched
    already_there: bool


_Copies = dict[str, "list[_LocalFile]"]
"""Files in the user's folder, by the name that the published file has."""


def fetch(name: str, dataset: PublicDataset, folder: Path, downloads: Downloads, phase: Phase) -> FetchResult:
    """Bring a public dataset into `folder`, downloaded from where it is published.

    Raises StateError for a folder with something else, a file that is not the published one, or a full disk;
    DeadlineError and NotFoundError where the files cannot be fetched.
    """
    if existing := _existing(name, folder):
        return FetchResult(existing, already_there=True)
    form, checksums = dataset.forms[0], {file.name: file.sha256 for file in dataset.forms[0].files}
    with _working(folder) as work:
        if existing := _existing(name, folder):
            return FetchResult(existing, already_there=True)
        with _writing(work):
            _check_space(form, work)
            paths = [_fetched(file, work, downloads, phase) for file in form.files]
        return _put(Fetched(name, checksums), form, paths, folder, phase)


def take(
    name: str, dataset: PublicDataset, folder: Path, local: Path, phase: Phase, *, unverified: bool = False
) -> FetchResult:
    """Bring a public dataset into `folder`, from files that are in the folder `local` or below it.

    With `unverified`, files of the right names are accepted that are not the published ones. Raises
    NotFoundError for missing files, StateError as `fetch` does.
    """
    if existing := _existing(name, folder):
        return FetchResult(existing, already_there=True)
    if not local.is_dir():
        raise UsageError(f"There is no folder '{local}'.", hint="Give the folder that holds the files.")
    form, copies = _chosen(dataset, local, phase, unverified=unverified)
    checksums = {file.name: copy.sha256 for file, copy in zip(form.files, copies, strict=True)}
    others = tuple(file.name for file in form.files if checksums[file.name] != file.sha256)
    with _working(folder):
        if existing := _existing(name, folder):
            return FetchResult(existing, already_there=True)
        return _put(Fetched(name, checksums, others), form, [copy.path for copy in copies], folder, phase)


def missing(dataset: PublicDataset, folder: Path) -> list[PublicFile]:
    """Return the files that `fetch` would download: none where the dataset is there already."""
    return [] if (folder / MARK).is_file() else list(dataset.forms[0].files)


def _existing(name: str, folder: Path) -> Fetched | None:
    """Return the dataset that was fetched to `folder`, None for an empty folder; raises StateError."""
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return None
        fetched = decode(read_file(folder, MARK, _LARGEST_MARK), Fetched)
        if fetched.name == name:
            return fetched
    except (OSError, NotAFileError, DecodeError):
        pass  # some other folder
    raise StateError(
        f"'{folder}' is there already, and is not the dataset '{name}' as it was fetched.",
        hint="Give another place with --to, or remove it.",
        folder=str(folder),
    )


def _fetched(file: PublicFile, work: Path, downloads: Downloads, phase: Phase) -> Path:
    """Return the path of a file that is complete and the published one, downloaded unless it is there."""
    path, part = work / file.name, work / f"{file.name}.part"
    if not path.exists() or _checksum(path, phase) != file.sha256:
        _download(file, part, downloads, phase)
        checksum = _checksum(part, phase)
        if checksum != file.sha256:
            part.unlink()
            raise _differs(file, part.with_name(file.name), checksum, "It was removed: try again, or later.")
        part.replace(path)
    return path


def _check_space(form: Form, work: Path) -> None:
    """Raise StateError where the disk does not hold the files, and what is unpacked from them."""
    present = sum(path.stat().st_size for path in work.iterdir() if path.is_file())
    needed = 2 * sum(file.size for file in form.files) - present
    free = shutil.disk_usage(work).free
    if needed > free:
        raise StateError(
            f"There are {free / 1e6:.0f} MB free in '{work.parent}', and the files need about "
            f"{needed / 1e6:.0f} MB, unpacked ones included.",
            hint="Free some space, or give another place with --to.",
            folder=str(work.parent),
        )


def _download(file: PublicFile, part: Path, downloads: Downloads, phase: Phase) -> None:
    """Download a file from the first of its URLs that has it."""
    failed: TpuctlError | None = None
    for url in file.urls:
        try:
            with phase(f"kB of {file.name}") as report:
                downloads.fetch(
                    url, part, lambda size, total: report(size // 1000, total // 1000), file.size or UNKNOWN
                )
            return
        except (DeadlineError, NotFoundError, StateError) as error:
            failed = failed or error
    assert failed is not None, f"{file.name} has no URL"
    failed.hint = f"{failed.hint} {_OFFLINE}"
    raise failed


@dataclass(frozen=True)
class _LocalFile:
    """A file in the user's folder."""

    path: Path
    sha256: str


def _chosen(
    dataset: PublicDataset, local: Path, phase: Phase, *, unverified: bool
) -> tuple[Form, list[_LocalFile]]:
    """Return the first form whose published files are all there; if `unverified`, whose names are."""
    copies = _copies(dataset, local, phase)
    for form in dataset.forms:
        if all(_published(file, copies[file.name]) for file in form.files):
            return form, [_only(file, copies[file.name]) for file in form.files]
    complete = [form for form in dataset.forms if all(copies[file.name] for file in form.files)]
    if not complete:
        raise _missing(dataset, local, copies)
    if not unverified:
        raise _wrong(complete[0], copies)
    return complete[0], [_only(file, copies[file.name]) for file in complete[0].files]


def _copies(dataset: PublicDataset, local: Path, phase: Phase) -> _Copies:
    """Return the files in and below a folder that have names of the dataset's files, by these names."""
    copies: _Copies = {file.name: [] for form in dataset.forms for file in form.files}
    for path in _below(local):
        if path.name in copies and path.is_file():  # a pipe or a device has no end
            copies[path.name].append(_LocalFile(path, _checksum(path, phase)))
    return copies


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent) / name for name in sorted(files))


def _published(file: PublicFile, copies: Sequence[_LocalFile]) -> _LocalFile | None:
    return next((copy for copy in copies if copy.sha256 == file.sha256), None)


def _only(file: PublicFile, copies: Sequence[_LocalFile]) -> _LocalFile:
    """Return the published file, or else the only one of its name; raises UsageError for several."""
    published = _published(file, copies)
    if len(copies) > 1 and not published:
        listed = ", ".join(f"'{copy.path}'" for copy in copies)
        raise UsageError(
            f"There are several files {file.name}: {listed}.", hint="Give --from the folder of one of them."
        )
    return published or copies[0]


def _wrong(form: Form, copies: _Copies) -> StateError:
    file = next(file for file in form.files if not _published(file, copies[file.name]))
    copy = copies[file.name][0]
    hint = "If it holds the same data in another archive, use it with --unverified."
    return _differs(file, copy.path, copy.sha256, hint)


def _missing(dataset: PublicDataset, local: Path, copies: _Copies) -> NotFoundError:
    forms = [[file.name for file in form.files if not copies[file.name]] for form in dataset.forms]
    return NotFoundError(
        f"'{local}' does not hold {', or '.join(', '.join(names) for names in forms)}.",
        hint="Give the folder that holds the files under these names, itself or in a folder below.",
        folder=str(local),
    )


def _differs(file: PublicFile, path: Path, checksum: str, hint: str) -> StateError:
    return StateError(
        f"'{path}' has the SHA-256 {checksum}, and that of the published {file.name} is {file.sha256}.",
        hint=hint,
        file=str(path),
        sha256=checksum,
        wanted=file.sha256,
    )


def _put(fetched: Fetched, form: Form, files: Sequence[Path], folder: Path, phase: Phase) -> FetchResult:
    """Unpack the files in the working folder, and rename them to `folder` when all are unpacked."""
    work = _work(folder)
    with _writing(folder):
        fresh = work / "unpacked"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        with phase(f"files unpacked of {fetched.name}"):
            form.unpack(files, fresh)
        (fresh / MARK).write_bytes(msgspec.json.format(msgspec.json.encode(fetched)) + b"\n")
        if folder.exists():
            folder.rmdir()  # it is empty
        fresh.rename(folder)
    return FetchResult(fetched, already_there=False)


def _work(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.fetch"


@contextmanager
def _working(folder: Path) -> Iterator[Path]:
    """Yield the working folder of a fetch to `folder` once no other fetch has it; delete it at a good end."""
    work = _work(folder)
    with _writing(work):
        lock = _locked(work)
    try:
        yield work
        shutil.rmtree(work)
    finally:
        if work.exists() and not any(work.iterdir()):
            work.rmdir()
        os.close(lock)


def _locked(work: Path) -> int:
    """Return a descriptor that holds the working folder's lock; the fetch that had it may have deleted it."""
    while True:
        if work.is_symlink():
            work.unlink()
        work.mkdir(parents=True, exist_ok=True)
        try:
            lock = private_folder.hold(work, lambda: None)
        except FileNotFoundError:
            continue
        if _is_open(work, lock):
            _remove_links(work)
            return lock
        os.close(lock)


def _is_open(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_links(work: Path) -> None:
    """Delete what a fetch never leaves in it: a project from elsewhere may bring links."""
    for path in work.iterdir():
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            path.unlink()


def _checksum(path: Path, phase: Phase) -> str:
    """Return the SHA-256 of a file; raises StateError where it cannot be read."""
    digest, total = sha256(), path.stat().st_size // 1000
    try:
        with phase(f"kB of {path.name} checked") as report, path.open("rb") as file:
            size = 0
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
                report(size // 1000, total)
    except OSError as error:
        raise StateError(f"Cannot read '{path}': {error.strerror}.", hint="Check its permissions.") from error
    return digest.hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"Cannot write '{error.filename or path}': {error.strerror}.",
            hint="Free some space, or give another place with --to.",
            file=str(path),
        ) from error
