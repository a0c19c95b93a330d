"""Getting a public dataset: its files fetched or found, checked, unpacked, and put in place all at once.

NAME/                what `tpuctl data upload` reads; `.fetched.json` in it says what it was made from
.NAME.fetch/         beside it while a fetch is under way, with what has come so far: the next one goes on
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

from tpuctl.data.public.catalogue import Form, PublicDataset, PublicFile
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError, UsageError

if TYPE_CHECKING:
    from tpuctl.cloud.downloads import Downloads

MARK = ".fetched.json"
_BLOCK = 1 << 20
_OFFLINE = "Without a network, take the files from a folder: --from FOLDER."

Phase = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Begins something that takes time: `phase("kB of mnist.npz")` yields what is told how many of how many."""


class Fetched(msgspec.Struct, frozen=True):
    """A public dataset that is in a folder."""

    name: str
    files: dict[str, str]
    """The files it was made from, and their SHA-256."""
    unverified: tuple[str, ...] = ()
    """Those that are not the published ones, as far as is known."""


@dataclass(frozen=True)
class Outcome:
    """What came of a fetch."""

    fetched: Fetched
    already_there: bool


def fetch(name: str, row: PublicDataset, folder: Path, downloads: Downloads, phase: Phase) -> Outcome:
    """Have a public dataset in `folder`, fetched from where it is published.

    Raises StateError for a folder with something else, a file that is not the published one, or a full disk;
    DeadlineError and NotFoundError where the files cannot be fetched.
    """
    if there := _there(name, folder):
        return Outcome(there, already_there=True)
    form, work = row.forms[0], _work(folder)
    with _writing(work):
        work.mkdir(parents=True, exist_ok=True)
        try:
            found = [_fetched(one, work, downloads, phase) for one in form.files]
        finally:
            if not any(work.iterdir()):
                work.rmdir()
    sums = {one.name: one.sha256 for one in form.files}
    return _put(Fetched(name, sums), form, found, folder, phase)


def take(
    name: str, row: PublicDataset, folder: Path, given: Path, phase: Phase, *, unverified: bool = False
) -> Outcome:
    """Have a public dataset in `folder`, from files that are in `given` or below it.

    With `unverified`, files of the right names are taken that are not the published ones. Raises
    NotFoundError for files that are not there, StateError as `fetch` does.
    """
    if there := _there(name, folder):
        return Outcome(there, already_there=True)
    if not given.is_dir():
        raise UsageError(f"There is no folder '{given}'.", hint="Give the folder that holds the files.")
    form, found = _chosen(row, given, phase, unverified=unverified)
    sums = {file.name: one.sha256 for file, one in zip(form.files, found, strict=True)}
    others = tuple(file.name for file in form.files if sums[file.name] != file.sha256)
    return _put(Fetched(name, sums, others), form, [one.path for one in found], folder, phase)


def missing(row: PublicDataset, folder: Path) -> list[PublicFile]:
    """Return the files that `fetch` would ask for: none where the dataset is there already."""
    return [] if (folder / MARK).is_file() else list(row.forms[0].files)


def _there(name: str, folder: Path) -> Fetched | None:
    """Return what a fetch before has left in `folder`, None where nothing is; raises StateError."""
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return None
        found = msgspec.json.decode((folder / MARK).read_bytes(), type=Fetched)
        if found.name == name:
            return found
    except (OSError, msgspec.DecodeError):
        pass  # whatever it is, it is not ours
    raise StateError(
        f"'{folder}' is there already, and is not the dataset '{name}' as it was fetched.",
        hint="Give another place with --to, or remove it.",
        folder=str(folder),
    )


def _fetched(file: PublicFile, work: Path, downloads: Downloads, phase: Phase) -> Path:
    """Return the path of a file that is whole and the published one."""
    path, part = work / file.name, work / f"{file.name}.part"
    if not path.exists():
        _download(file, part, downloads, phase)
        found = _sum(part, phase)
        if found != file.sha256:
            part.unlink()
            raise _other(file, part.with_name(file.name), found, "It was removed: try again, or later.")
        part.replace(path)
    return path


def _download(file: PublicFile, part: Path, downloads: Downloads, phase: Phase) -> None:
    """Fetch a file from the first of its places that has it."""
    failed: TpuctlError | None = None
    for url in file.urls:
        try:
            with phase(f"kB of {file.name}") as tell:
                downloads.fetch(url, part, lambda done, total: tell(done // 1000, total // 1000))
            return
        except (DeadlineError, NotFoundError, StateError) as error:
            failed = failed or error
    assert failed is not None, f"{file.name} is in no place"
    failed.hint = f"{failed.hint} {_OFFLINE}"
    raise failed


@dataclass(frozen=True)
class _Found:
    """A file in a folder of the user's."""

    path: Path
    sha256: str


def _chosen(row: PublicDataset, given: Path, phase: Phase, *, unverified: bool) -> tuple[Form, list[_Found]]:
    """Return the first form of which all files are there and right; or else, where wanted, only there."""
    names = {file.name for form in row.forms for file in form.files}
    there: dict[str, list[_Found]] = {name: [] for name in names}
    for path in _below(given):
        if path.name in names:
            there[path.name].append(_Found(path, _sum(path, phase)))
    for form in row.forms:
        if all(any(one.sha256 == file.sha256 for one in there[file.name]) for file in form.files):
            return form, [_right(file, there[file.name]) for file in form.files]
    whole = [form for form in row.forms if all(there[file.name] for file in form.files)]
    if not whole:
        raise _not_there(row, given, {name for name in names if there[name]})
    if not unverified:
        raise _wrong(whole[0], there)
    return whole[0], [_only(file, there[file.name]) for file in whole[0].files]


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        yield from (Path(place) / name for name in sorted(files))


def _right(file: PublicFile, found: Sequence[_Found]) -> _Found:
    return next(one for one in found if one.sha256 == file.sha256)


def _only(file: PublicFile, found: Sequence[_Found]) -> _Found:
    """Return the file; raises UsageError where there are several of its name."""
    if len(found) > 1 and not any(one.sha256 == file.sha256 for one in found):
        listed = ", ".join(f"'{one.path}'" for one in found)
        raise UsageError(
            f"There are several files {file.name}: {listed}.", hint="Give --from the folder of one of them."
        )
    return next((one for one in found if one.sha256 == file.sha256), found[0])


def _wrong(form: Form, there: dict[str, list[_Found]]) -> StateError:
    file = next(file for file in form.files if all(one.sha256 != file.sha256 for one in there[file.name]))
    one = there[file.name][0]
    hint = "If it holds the same data, packed by somebody else, take it with --unverified."
    return _other(file, one.path, one.sha256, hint)


def _not_there(row: PublicDataset, given: Path, there: set[str]) -> NotFoundError:
    forms = [[file.name for file in form.files if file.name not in there] for form in row.forms]
    return NotFoundError(
        f"'{given}' does not hold {', or '.join(', '.join(names) for names in forms)}.",
        hint="Give the folder that holds the files under these names, itself or in a folder below.",
        folder=str(given),
    )


def _other(file: PublicFile, path: Path, found: str, hint: str) -> StateError:
    return StateError(
        f"'{path}' has the SHA-256 {found}, and that of the published {file.name} is {file.sha256}.",
        hint=hint,
        file=str(path),
        sha256=found,
        wanted=file.sha256,
    )


def _put(made: Fetched, form: Form, files: Sequence[Path], folder: Path, phase: Phase) -> Outcome:
    """Unpack the files beside `folder`, and give that its name when all is there."""
    work = _work(folder)
    with _writing(folder):
        fresh = work / "unpacked"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        with phase(f"files unpacked of {made.name}"):
            form.unpack(files, fresh)
        (fresh / MARK).write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        if folder.exists():
            folder.rmdir()  # it is empty
        fresh.rename(folder)
        shutil.rmtree(work)
    return Outcome(made, already_there=False)


def _work(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.fetch"


def _sum(path: Path, phase: Phase) -> str:
    """Return the SHA-256 of a file; raises StateError where it cannot be read."""
    digest, total = sha256(), path.stat().st_size // 1000
    try:
        with phase(f"kB of {path.name} checked") as tell, path.open("rb") as file:
            done = 0
            while block := file.read(_BLOCK):
                digest.update(block)
                done += len(block)
                tell(done // 1000, total)
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
