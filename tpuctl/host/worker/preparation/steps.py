"""Prepares a host for the script: room on the disk, code, packages, and the user's set-up command."""

from __future__ import annotations

import gzip
import io
import os
import pkgutil
import shutil
import signal
import subprocess
import time
import zlib
from typing import IO, Callable, Iterator, Mapping, Tuple, TypeVar

from tpuctl.host import gcs, timing
from tpuctl.host.worker.preparation import environment, interpreters, old_runs, packages
from tpuctl.host.worker.preparation.environment import Prepared
from tpuctl.host.worker.preparation.tar_files import FILE, FOLDER, Member, TarError, TarReader, TooMuchError
from tpuctl.host.worker.records import CELLS_FILE, CODE, COMMAND, EXECUTED, NOTEBOOK, OWN, SHELL, Spec

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
    import tempfile  # noqa: PLC0415  slow, and most bundles are small

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
    old_runs.remove(folder)
    code = os.path.join(folder, CODE)
    fetch(bucket, spec, code)
    base = _patiently(lambda: interpreters.ensure(bucket, spec, folder, log))
    needs_packages = spec.dependencies or spec.requirements
    installed = _installed(spec, folder, code, log, base) if needs_packages else ""
    prepared = Prepared(interpreters.environment(base, spec, folder), installed)
    if spec.kind in (SHELL, COMMAND):
        environment.write_commands(code, prepared.interpreter)
    if spec.kind == NOTEBOOK:
        os.makedirs(os.path.join(folder, EXECUTED), exist_ok=True)
        with open(os.path.join(folder, CELLS_FILE), "wb") as program:
            program.write(pkgutil.get_data("tpuctl.host.worker.job", CELLS_FILE) or b"")
    if spec.setup:
        variables = environment.of_job(spec, prepared, reports, code)
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
