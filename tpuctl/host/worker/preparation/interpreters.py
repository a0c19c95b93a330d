"""Gives the script the Python that it asks for: the image's own, one of the bucket, or one that uv gets.

A complete interpreter is kept between runs, as packages are. Each attempt has its own virtual environment:
what a set-up command installs there is seen by no other run.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import subprocess
import sys
from typing import IO, Callable, List, Sequence

from tpuctl.host import gcs
from tpuctl.host.worker import requirements
from tpuctl.host.worker.preparation import installers, packages
from tpuctl.host.worker.records import OWN, Spec, python_archive

PREFERRED = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9")
"""Which one is taken where a script allows several: frameworks have wheels for the first ones."""
UV = "uv==0.13.9"
"""What pip gets where the image has no uv; it knows the interpreters by their SHA-256."""
FOLDER = "pythons"
"""Beside the folder of all packages."""
ENVIRONMENT = "environment"
"""The virtual environment in an attempt's folder."""


class PythonError(Exception):
    """The host has no Python that the script requires, and could not get one."""


def ensure(bucket: gcs.Bucket, spec: Spec, folder: str, log: str) -> str:
    """Return the base interpreter for an attempt in `folder`; empty where this one fits.

    Raises PythonError, GcsError, and OSError for a disk without space.
    """
    present = sys.version.partition(" ")[0]
    try:
        if _fits(spec, present):
            return ""
        archives = [version for version in spec.python_archives if _fits(spec, version)]
    except ValueError as error:
        raise PythonError("requires-python: %s" % error) from None
    root = os.path.join(os.path.dirname(packages.root_of(folder)), FOLDER)
    with open(log, "ab") as output:

        def say(text: str) -> None:
            output.write(("[tpuctl] %s\n" % text).encode())
            output.flush()

        def kept(key: str, build: Callable[[str], None], subject: str = "") -> str:
            return packages.obtain(root, key, build, lambda: say("%s of an earlier run is used" % subject))

        try:
            if archives:
                place = _of_bucket(bucket, spec.python_archives[archives[0]], archives[0], kept, say, output)
            else:
                place = _of_uv(request_of(spec.python, spec.requires_python), kept, say, output)
            python = os.path.join(place, "bin", "python3")
            version = _version(python)
            if not _fits(spec, version):
                raise PythonError("it is Python %s" % (version or "that does not start"))
        except PythonError as error:
            asked = spec.python or spec.requires_python
            text = "the script requires Python %s, the host has %s, and another one could not be had: %s"
            raise PythonError(text % (asked, present, error)) from None
    return python


def _fits(spec: Spec, version: str) -> bool:
    return requirements.accepts_python(spec.python, spec.requires_python, version)


def request_of(python: str, requires: str) -> str:
    """Return what uv is asked for: a version, or where none of the usual ones is allowed, the specifier."""
    usual = (minor for minor in PREFERRED if requirements.accepts(requires, minor + ".99"))
    return python or next(usual, requires)


Kept = Callable[..., str]


def _of_bucket(
    bucket: gcs.Bucket, sha256: str, version: str, kept: Kept, say: Callable[[str], None], output: IO[bytes]
) -> str:
    """Return the folder of the interpreter in an archive, which has the hash that the laptop knows."""

    def build(folder: str) -> None:
        say("installing Python %s from gs://%s/%s" % (version, bucket.name, python_archive(sha256)))
        scratch = os.path.dirname(folder)
        archive, unpacked = os.path.join(scratch, "archive.tar.gz"), os.path.join(scratch, "unpacked")
        generation, size = bucket.stat(python_archive(sha256))
        if not generation:
            raise PythonError("there is no gs://%s/%s" % (bucket.name, python_archive(sha256)))
        with open(archive, "wb") as stream:
            found = bucket.copy(python_archive(sha256), generation, size, stream)
        if found != sha256:
            raise PythonError("%s has the hash %s" % (python_archive(sha256), found))
        os.mkdir(unpacked)
        if installers.call(["tar", "-xzf", archive, "-C", unpacked, "--no-same-owner"], scratch, output):
            raise PythonError("%s could not be unpacked" % python_archive(sha256))
        _take(unpacked, folder)

    return kept(sha256[:32], build, "Python %s" % version)


def _of_uv(request: str, kept: Kept, say: Callable[[str], None], output: IO[bytes]) -> str:
    """Return the folder of an interpreter that uv has checked by the hash that it knows."""

    def build(folder: str) -> None:
        uv = installers.find_uv() or _pip_uv(kept, output)
        say("installing Python %s by uv" % request)
        place = os.path.join(os.path.dirname(folder), "installed")
        own = {"UV_PYTHON_INSTALL_DIR": place, "UV_PYTHON_INSTALL_BIN": "0", "UV_PYTHON_DOWNLOADS": "manual"}
        command = [*uv, "python", "install", "--no-progress", request]
        if installers.call(command, os.path.dirname(folder), output, own):
            raise PythonError("uv could not get it (see the log). %s" % _ADVICE % _shown(request))
        _take(place, folder)

    return kept(_key(UV, request), build, "the Python %s" % request)


_ADVICE = "For hosts without a way to GitHub put one into the bucket: tpuctl python %s"


def _shown(request: str) -> str:
    """A request as the argument of a command."""
    return request if request[:1].isdigit() else PREFERRED[0]


def _pip_uv(kept: Kept, output: IO[bytes]) -> Sequence[str]:
    def build(folder: str) -> None:
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--no-deps", "--target", folder, UV]
        if installers.call(command, os.path.dirname(folder), output):
            raise PythonError(
                "pip could not install uv, which gets it (see the log). %s" % _ADVICE % PREFERRED[0]
            )

    return (os.path.join(kept(_key(UV), build, UV), "bin", "uv"),)


def _key(*chosen: str) -> str:
    return hashlib.sha256(json.dumps([*chosen, os.uname().machine]).encode()).hexdigest()[:32]


def _take(place: str, folder: str) -> None:
    """Make the one interpreter in a folder the folder itself."""
    found = {os.path.realpath(os.path.join(path, "..", "..")) for path in glob.glob(place + "/*/bin/python3")}
    if len(found) != 1:
        raise PythonError("it holds no bin/python3")
    os.rename(found.pop(), folder)


def _version(python: str) -> str:
    """The version of an interpreter; empty for one that does not run."""
    command = [python, "-I", "-c", "import sys; print(sys.version.partition(' ')[0])"]
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError:
        return ""
    return answer.stdout.decode("ascii", "replace").strip() if answer.returncode == 0 else ""


def environment(python: str, spec: Spec, folder: str) -> str:
    """Return the Python of the script: that of a new virtual environment without the image's packages.

    It is of the base `python`, of this one where that is empty. Empty where the script uses the image: this
    Python, with all that it can import. Raises PythonError.
    """
    if not python and spec.packages != OWN:
        return ""
    place = os.path.join(folder, ENVIRONMENT)
    # A set-up command may call pip. Debian's Python has none to put there: then it is the image's.
    tries: List[List[str]] = [["--clear"], ["--clear", "--without-pip"]][0 if spec.setup else 1 :]
    for options in tries:
        if not installers.call([python or sys.executable, "-I", "-m", "venv", *options, place], folder, None):
            return os.path.join(place, "bin", "python")
    raise PythonError("%s could not make a virtual environment" % (python or sys.executable))
