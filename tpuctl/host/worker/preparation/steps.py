"""Prepares a host for the script: room on the disk, code, packages, and the user's set-up command.

- Builds the environment of a script on a host.

  TPUCTL_DATA_DIR, TPUCTL_ACCELERATOR, those of slices and the TPU_NAME of several hosts come from the laptop,
  in `Spec.environment`: flows/runs/submission sets them.
- Deletes the files of old runs from a host's disk: the newest few stay, and each that is not over.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import os
import pkgutil
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from typing import (
    IO,
    BinaryIO,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from tpuctl.host import gcs, timing
from tpuctl.host.worker.control import is_held_in, take
from tpuctl.host.worker.preparation import interpreters, packages
from tpuctl.host.worker.preparation.tar_files import FILE, FOLDER, Member, TarError, TarReader, TooMuchError
from tpuctl.host.worker.records import (
    CELLS_FILE,
    CODE,
    COMMAND,
    ENTERED,
    ENTRY_FILE,
    EXECUTED,
    INSTALLED,
    LOCK_FILE,
    NOTEBOOK,
    OWN,
    PROGRAM_FILE,
    SCRIPT,
    SCRIPT_LOCK_FILE,
    SHELL,
    STARTED,
    Spec,
    identity,
)

FOLDERS = (
    ("TPUCTL_MODEL_DIR", "AIP_MODEL_DIR", "outputs"),
    ("TPUCTL_CHECKPOINT_DIR", "AIP_CHECKPOINT_DIR", "checkpoints"),
    ("TPUCTL_TENSORBOARD_DIR", "AIP_TENSORBOARD_LOG_DIR", "tensorboard"),
)
"""Our variable, Vertex AI's variable, the folder of the run that both name."""


class Prepared(NamedTuple):
    """What the program runs with on this host."""

    python: str = ""
    """Interpreter in a virtual environment without the image's packages; empty for the image's own."""
    packages: str = ""
    """Folder of what was installed for it; empty for none."""

    @property
    def interpreter(self) -> str:
        """The Python that runs it."""
        return self.python or sys.executable


COMMANDS = "bin"
"""Folder beside the code with commands `python` and `python3`: the image has no `python`."""


def write_commands(code: str, python: str) -> None:
    """Write commands that start an interpreter by its usual names, and those of the project's packages."""
    folder = os.path.join(os.path.dirname(code), COMMANDS)
    os.makedirs(folder, exist_ok=True)
    texts = {name: _SCRIPT % (python, *target.partition(":")[::2]) for name, target in _console_scripts(code)}
    start = '#!/bin/sh\nexec %s "$@"\n' % shlex.quote(python)
    texts.update(python=start, python3=start)
    for name, text in texts.items():
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755), "w") as stream:
            stream.write(text)


_SCRIPT = "#!%s\nimport sys\nfrom importlib import import_module\nfrom operator import attrgetter\n" + (
    "module, name = %r, %r\nsys.exit(attrgetter(name)(import_module(module))())\n"
)
"""What pip writes for a console script, in short."""


def _console_scripts(code: str) -> Iterator[Tuple[str, str]]:
    """Yield name and object of each command that the project's packages have."""
    import configparser  # slow, and most projects have none

    for path in glob.glob(os.path.join(glob.escape(code), INSTALLED, "*.dist-info", "entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read(path, encoding="utf-8")
        for name, target in parser["console_scripts"].items() if "console_scripts" in parser else ():
            if os.path.basename(name) == name and ":" in target:
                yield name, target


def _editables(code: str) -> List[str]:
    """Return the folders of modules of the project's packages, and the one with their dist-info."""
    installed = os.path.join(code, INSTALLED)
    folders = []
    for path in sorted(glob.glob(os.path.join(glob.escape(installed), "*.pth"))):
        with open(path, encoding="utf-8") as stream:
            folders.append(os.path.normpath(os.path.join(code, stream.readline().strip())))
    return [*folders, installed] if folders else []


def of_job(spec: Spec, prepared: Prepared, reports: str = "", code: str = "") -> Dict[str, str]:
    """Return the script's environment: the host's own, the run's folders, and the user's variables.

    `reports` and `code` are folders on this host; reports go into the bucket when the script ends. Modules
    of a project are found from every folder of it, in a folder `src` as well.
    """
    result = dict(os.environ)
    result.update(
        TPUCTL_RUN=spec.run,
        TPUCTL_ATTEMPT=str(spec.attempt),
        TPUCTL_WORKER=str(spec.worker),
        TPUCTL_WORKERS=str(spec.workers),
        PYTHONUNBUFFERED="1",
    )
    for variable, vertex, folder in FOLDERS:
        result[variable] = result[vertex] = "gs://%s/runs/%s/%s" % (spec.bucket, spec.run, folder)
    if reports:
        result["TPUCTL_REPORT_DIR"] = reports
        result.setdefault("TPU_LOG_DIR", tpu_logs(reports))
    if spec.framework == "tensorflow" and spec.workers == 1:
        result["TPU_NAME"] = "local"  # so that TPUClusterResolver() on one host calls no API
    if spec.framework == "tensorflow":
        # Its start-up logs a dozen long lines of level INFO, which is 0, before the script's first one.
        result.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    result.update(spec.environment)
    programs = []
    if code and spec.kind in (SHELL, COMMAND):
        programs += [os.path.join(os.path.dirname(code), COMMANDS)]
        programs += [os.path.join(prepared.packages, "bin")] if prepared.packages else []
    if prepared.python:
        programs.append(os.path.dirname(prepared.python))
        result["VIRTUAL_ENV"] = os.path.dirname(programs[-1])
    if programs:
        result["PATH"] = os.pathsep.join([*programs, result.get("PATH", os.defpath)])
    is_lone = spec.kind == SCRIPT and not spec.directory and "/" not in spec.script
    source = os.path.join(code, "src")
    modules = [code if code and not is_lone else "", source if code and os.path.isdir(source) else ""]
    modules += _editables(code) if code else []
    path = [prepared.packages, result.get("PYTHONPATH", ""), *modules]
    if any(path):
        result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    return result


def write_entry(spec: Spec, prepared: Prepared, folder: str, code: str) -> None:
    """Write what a command needs that is started in the run's environment later, readable by its owner alone.

    It has the environment of a run of kind COMMAND, and only values that the bucket has. Its reports have a
    folder of their own: by that variable the run's processes are found, and ended with it.
    """
    reports = os.path.join(folder, ENTERED, "reports")
    for path in (reports, tpu_logs(reports)):
        os.makedirs(path, exist_ok=True)
    stored = {name: value for name, value in spec.environment.items() if name in spec.stored}
    variables = of_job(replace(spec, kind=COMMAND, environment=stored), prepared, reports, code)
    entry = {
        "folder": working_folder(spec, code),
        "variables": {name: value for name, value in variables.items() if os.environ.get(name) != value},
        "unstored": sorted(spec.environment.keys() - stored.keys()),
    }
    path = os.path.join(folder, ENTRY_FILE)
    with open(os.open(path + ".part", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as stream:
        json.dump(entry, stream)
    os.replace(path + ".part", path)


def tpu_logs(reports: str) -> str:
    """Return the folder of libtpu's own logs beside that of the reports.

    The default is /tmp/tpu_logs, which the first user of a host owns: no other user's libtpu can write there.
    """
    return os.path.join(os.path.dirname(reports), "tpu_logs")


KEPT = 5
"""Attempts that stay whole, the last used first."""
SHORTEST, LONGEST = 3600.0, 30 * 86400.0
"""Seconds after an attempt's end within which it stays whole, and after which nothing of it stays."""
RECORDS = (LOCK_FILE, STARTED, "supervisor.log", "last_status.json")
"""Small files that stay meanwhile: they tell who asks that the attempt was here, and how it ended."""


def remove(attempt_folder: str) -> None:
    """Delete what earlier attempts in folders beside this one's left, in `.../RUN/ATTEMPT`.

    One whose supervisor or script lives stays as it is, however old. What cannot be deleted stays.
    """
    own = os.path.realpath(attempt_folder)
    others = [folder for folder in _attempts(os.path.dirname(os.path.dirname(own))) if folder != own]
    for number, folder in enumerate(sorted(others, key=_last_use, reverse=True), start=1):
        if number >= KEPT and _age(folder) > SHORTEST:  # this attempt is one of those that stay
            _remove(folder)


def make_room(folder: str, key: str) -> Optional[BinaryIO]:
    """Delete what an attempt with another key left in this attempt's folder; return the attempt's lock, held.

    That was of a run of the same name, which was removed. None for one whose supervisor or script lives,
    which stays as it is, and for one of an earlier version, which noted no key.
    """
    lock = open(os.path.join(folder, LOCK_FILE), "ab")  # noqa: SIM115  the caller closes it
    if not take(lock) or is_held_in(folder, SCRIPT_LOCK_FILE) or not _is_of_another(folder, key):
        lock.close()
        return None
    with os.scandir(folder) as entries:
        # STARTED last: without it the next launch would not see what is left
        for entry in sorted(entries, key=lambda entry: entry.name == STARTED):
            _remove_entry(entry, kept=(LOCK_FILE, PROGRAM_FILE))
    os.utime(lock.fileno())
    return lock


def _is_of_another(folder: str, key: str) -> bool:
    """Return whether what was started in a folder has another key, or is deleted by now."""
    try:
        with open(os.path.join(folder, STARTED), encoding="ascii") as stream:
            _, _, former = stream.read().partition(" ")
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return former not in ("", identity(key))


def _attempts(runs: str) -> Iterator[str]:
    """Yield the folders of attempts; no link is followed."""
    for run in _folders(runs):
        yield from (folder for folder in _folders(run) if os.path.basename(folder).isdigit())


def _folders(folder: str) -> List[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _last_use(folder: str) -> float:
    """When the attempt's folder or one of its records was written last, since 1970."""
    times = [0.0]
    for path in (folder, *(os.path.join(folder, name) for name in RECORDS)):
        try:
            times.append(os.lstat(path).st_mtime)
        except OSError:
            pass
    return max(times)


def _age(folder: str) -> float:
    return time.time() - _last_use(folder)


def _remove(folder: str) -> None:
    """Delete an attempt's files, or all but its records, unless it was used again meanwhile."""
    try:
        lock = open(os.path.join(folder, LOCK_FILE), "rb")  # noqa: SIM115  closed below
    except OSError:  # it never started
        if _age(folder) > SHORTEST:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with lock:
        if not take(lock) or is_held_in(folder, SCRIPT_LOCK_FILE) or _age(folder) <= SHORTEST:
            return
        if _age(folder) > LONGEST:
            shutil.rmtree(folder, ignore_errors=True)
            _remove_empty(os.path.dirname(folder))
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                _remove_entry(entry)


def _remove_entry(entry: "os.DirEntry[str]", kept: Sequence[str] = RECORDS) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    elif entry.name not in kept:
        try:
            os.unlink(entry.path)
        except OSError:
            pass


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # another attempt of the run is in it
        pass


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BundleError(Exception):
    """The bundle is not the code that was submitted, or is unsafe to unpack."""


Result = TypeVar("Result")


def _patiently(work: Callable[[], Result]) -> Result:
    """Wait for a bucket that cannot be reached: nothing runs yet that its silence would harm."""
    end = time.monotonic() + timing.CODE_TIMEOUT
    while True:
        try:
            return work()
        except gcs.UnreachableError:
            if time.monotonic() > end:
                raise


def fetch(bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
    """Unpack a spec's bundle into the new `folder`; raises BundleError when it is damaged or unsafe."""
    _patiently(lambda: _fetch(bucket, spec, folder))


def _fetch(bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
    """Unpack it, by one try of each request.

    Everything is checked before the first file is written.
    """
    with _scratch(os.path.dirname(folder), spec.bundle_size) as archive:
        _download(bucket, spec, archive)
        for member, _ in _members(archive, spec.unpacked_size):
            _check(member)
        os.makedirs(folder)
        for member, content in _members(archive, spec.unpacked_size):
            target = os.path.join(folder, member.name)
            if member.kind == FOLDER:
                os.makedirs(target, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                _write(member, content, target)


def _scratch(folder: str, size: int) -> IO[bytes]:
    """Return a place for so many bytes: memory for what one request fetches, else a file without a name."""
    if size <= gcs.PART:
        return io.BytesIO()
    import tempfile  # slow, and most bundles are small

    return tempfile.TemporaryFile(dir=folder)


def _download(bucket: gcs.Bucket, spec: Spec, archive: IO[bytes]) -> None:
    """Write the bundle's bytes to a file; they are not read before their number is right."""
    place = "gs://%s/%s" % (bucket.name, spec.bundle)
    generation, size = bucket.stat(spec.bundle)
    if not generation:
        raise FileNotFoundError(place)
    if size != spec.bundle_size:
        raise BundleError("%s has %d bytes, not %d: %s" % (place, size, spec.bundle_size, _REPLACED))
    found = bucket.copy(spec.bundle, generation, size, archive)
    if found != spec.bundle_sha256:
        text = "the code in %s has the hash %s, not %s: %s"
        raise BundleError(text % (place, found, spec.bundle_sha256, _REPLACED))


_REPLACED = "it was replaced after the run was submitted; submit it again"


def _members(archive: IO[bytes], most: int) -> Iterator[Tuple[Member, TarReader]]:
    """Yield the members of a tar.gz in order, each with what reads its content until the next one.

    Raises BundleError for damage and for too many bytes.
    """
    archive.seek(0)
    reader = TarReader(gzip.GzipFile(fileobj=archive), most)  # type: ignore[arg-type]
    try:
        for member in reader:
            yield member, reader
    except TooMuchError:
        raise BundleError("the bundle unpacks to more bytes than were submitted") from None
    except (TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BundleError("the bundle is damaged: %s" % error) from None


def _check(member: Member) -> None:
    """Raise BundleError unless the member is a plain file or folder inside the folder."""
    parts = member.name.split("/")
    inside = not {"", ".", ".."}.intersection(parts) and "\0" not in member.name
    if not inside or member.kind not in (FILE, FOLDER):
        raise BundleError("the bundle holds %r, which is not a plain file inside it" % member.name)


def _write(member: Member, content: TarReader, target: str) -> None:
    """Write a file; of its mode only whether its owner may execute it counts."""
    with open(os.open(target, _CREATE, 0o755 if member.mode & 0o100 else 0o644), "wb") as stream:
        shutil.copyfileobj(content, stream)


class SetupError(Exception):
    """The command failed; the text says how."""


def run(command: str, folder: str, environment: Mapping[str, str], log: str, timeout: float) -> None:
    """Run a command for sh in a folder, up to its first failure; its output goes to the end of `log`.

    It and its children end with the limit in seconds, and with what interrupts this. Raises SetupError.
    """
    with open(log, "ab") as output:
        output.write(b"[tpuctl] running the setup command\n")
        output.flush()
        process = subprocess.Popen(
            ["/bin/sh", "-e", "-c", command], cwd=folder, env=dict(environment), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise SetupError("the setup command did not end in %d s (see the log)" % timeout) from None
    except BaseException:
        _end(process)
        raise
    if code < 0:
        raise SetupError("the setup command was ended by %s (see the log)" % signal.Signals(-code).name)
    if code:
        raise SetupError("the setup command failed with exit code %d (see the log)" % code)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command with its children: by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timing.SETUP_GRACE)
        except subprocess.TimeoutExpired:
            pass


ERRORS = (BundleError, interpreters.PythonError, packages.PackageError, SetupError)
"""What ends the preparation besides GcsError and OSError."""


def prepare(bucket: gcs.Bucket, spec: Spec, folder: str, log: str, reports: str) -> Prepared:
    """Prepare an attempt in its `folder`: its code, its Python, its packages.

    The set-up command runs for each attempt: each has a fresh copy of the code. It sees the packages and the
    script's variables. Raises ERRORS, GcsError and OSError.
    """
    remove(folder)
    code = os.path.join(folder, CODE)
    fetch(bucket, spec, code)
    base = _patiently(lambda: interpreters.ensure(bucket, spec, folder, log))
    needs_packages = spec.dependencies or spec.requirements
    installed = _installed(spec, folder, code, log, base) if needs_packages else ""
    prepared = Prepared(interpreters.environment(base, spec, folder), installed)
    write_commands(code, prepared.interpreter)
    write_entry(spec, prepared, folder, code)
    if spec.kind == NOTEBOOK:
        os.makedirs(os.path.join(folder, EXECUTED), exist_ok=True)
        with open(os.path.join(folder, CELLS_FILE), "wb") as program:
            program.write(pkgutil.get_data("tpuctl.host.worker.job", CELLS_FILE) or b"")
    if spec.setup:
        variables = of_job(spec, prepared, reports, code)
        run(spec.setup, working_folder(spec, code), variables, log, spec.setup_timeout)
    return prepared


def working_folder(spec: Spec, code: str) -> str:
    """Return the folder in which the program runs; the bundle has no empty ones."""
    folder = os.path.join(code, spec.directory) if spec.directory else code
    os.makedirs(folder, exist_ok=True)
    return folder


def _installed(spec: Spec, folder: str, code: str, log: str, python: str) -> str:
    lock = os.path.join(code, spec.requirements) if spec.requirements else ""
    wheelhouse = os.path.join(code, spec.wheelhouse) if spec.wheelhouse else ""
    is_own, root = spec.packages == OWN or bool(python), packages.root_of(folder)
    if spec.choice:
        with open(log, "ab") as output:
            output.write(("[tpuctl] chosen: %s\n" % spec.choice).encode())
    return packages.ensure(
        spec.dependencies,
        lock,
        root,
        log,
        is_own,
        wheelhouse,
        spec.pins,
        python,
        spec.constraints,
        spec.sources,
    )
