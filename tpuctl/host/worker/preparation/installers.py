"""Installs requirements into a folder by uv or pip: only what the image lacks, and nothing that hides it.

The folder comes before the image on PYTHONPATH, so a second jaxlib or TensorFlow in it would hide the one for
the TPU. pip installs into a virtual environment that shows it everything on the image, with the image's
versions as constraints. uv does not look outside of an environment: it resolves, and gets what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from operator import itemgetter
from types import MappingProxyType
from typing import IO, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tpuctl.host.worker import requirements


class InstallError(Exception):
    """The text says what could not be installed, and why."""


class Order(NamedTuple):
    """What is installed, and what it must fit."""

    names: str
    """The requirements for a message."""
    lines: Sequence[str]
    """Of pip's requirements file; URLs may hold passwords, so no command line shows them."""
    image: Mapping[str, str] = MappingProxyType({})
    """Versions of what the image has, which is not installed a second time. Empty where everything is."""
    held: Mapping[str, str] = MappingProxyType({})
    """Versions that stay: of the image's frameworks, and of what they require."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Names that a distribution of another name stands for, with its version."""
    is_locked: bool = False
    """Whether each line has hashes, and nothing but these lines is installed."""
    wheelhouse: str = ""
    """Folder of wheels, the only place that packages come from; empty for the host's own index."""
    other_python: str = ""
    """Interpreter that imports them and sees nothing of the image; empty for this one."""
    pins: Mapping[str, str] = MappingProxyType({})
    """Versions that packages get whatever the image has: those of the run that this one repeats."""

    origins: Sequence[str] = ()
    """Options of pip's requirements file: where packages come from besides the host's own index."""
    limits: Sequence[str] = ()
    """Requirements that hold for what is installed."""

    @property
    def python(self) -> str:
        """Interpreter that imports them."""
        return self.other_python or sys.executable

    @property
    def sources(self) -> List[str]:
        """Options of pip and uv that say where packages come from."""
        return ["--no-index", "--find-links", self.wheelhouse] if self.wheelhouse else []

    @property
    def constraints(self) -> str:
        """The file that holds an installer to the image's frameworks, and to what is pinned."""
        versions = {**self.aliases, **self.held, **self.pins}
        lines = ["%s==%s" % pair for pair in sorted(versions.items())]
        return "".join(line + "\n" for line in [*lines, *self.limits])


_WRONG_HASH = b"DO NOT MATCH THE HASHES"
"""pip's message for a file of another content; it has no exit code of its own for that."""
_NO_SPACE = re.compile(rb"No space left on device|Disk quota exceeded")
_HELD = re.compile(r"The user requested \(constraint\) ([A-Za-z0-9._-]+)==(\S+)")
_DEPENDS = re.compile(r"^[ \t]+(\S+) (\S+) depends on ([A-Za-z0-9._-]+)(.*)$", re.MULTILINE)
"""How pip's resolver tells a conflict."""
_PIP_SOURCES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE")
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_PIP_PLACES = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER")


Older = Dict[str, Tuple[str, str]]
"""Package -> version that was installed, and the newer one that is there."""


def install(order: Order, folder: str, output: IO[bytes]) -> Older:
    """Install into the new `folder`, whose parent is a scratch folder of ours; tools write to `output`.

    Return what is older than it would be without the versions that stay. Raises InstallError.
    """
    scratch = os.path.dirname(folder)
    with open(os.path.join(scratch, "requirements.txt"), "w", encoding="utf-8") as stream:
        stream.write("".join(line + "\n" for line in [*order.origins, *order.lines]))
    with open(os.path.join(scratch, "constraints.txt"), "w", encoding="utf-8") as stream:
        stream.write(order.constraints)
    uv = _uv()
    older = _install_by_uv(uv, order, scratch, folder, output) if uv and not order.is_locked else None
    if older is None:
        older = _install_by_pip(order, scratch, folder, output)
        if not order.is_locked:
            _replace_second_tensorflow(order, scratch, folder, output)
    return older


def _install_by_pip(order: Order, scratch: str, folder: str, output: IO[bytes]) -> Older:
    if order.other_python:
        return _install_for_other(order, scratch, folder, output)
    python, packages = _environment(os.path.join(scratch, "environment"))
    stubs = [_stub(packages, name, version) for name, version in order.aliases.items()]
    start = output.tell()
    _pip(order, python, [] if order.image else ["--ignore-installed"], scratch, output)
    for stub in stubs:
        shutil.rmtree(stub, ignore_errors=True)
    os.remove(os.path.join(packages, _IMAGE))
    os.rename(packages, folder)
    return _tried(_text(output, start).decode("utf-8", "replace")) if order.held else {}


_TENSORFLOW, _FOR_TPU = "tensorflow", "tensorflow-tpu"
"""Distributions of one module: of two, the last one that is installed overwrites the other's files."""


def _replace_second_tensorflow(order: Order, scratch: str, folder: str, output: IO[bytes]) -> None:
    """Put the build for TPUs over the one that another package has required; pip can leave none out."""
    found = {}
    for name in os.listdir(folder):
        distribution, _, version = name.replace(".dist-info", "").partition("-")
        if name.endswith(".dist-info"):
            found[requirements.normalized(distribution)] = (version, os.path.join(folder, name))
    if not found.keys() >= {_TENSORFLOW, _FOR_TPU}:
        return
    with open(os.path.join(scratch, "requirements.txt"), "w", encoding="utf-8") as stream:
        lines = [*order.origins, "%s==%s" % (_FOR_TPU, found[_FOR_TPU][0])]
        stream.write("".join(line + "\n" for line in lines))
    shutil.rmtree(found[_TENSORFLOW][1])
    _pip(order, order.python, ["--target", folder, "--upgrade", "--no-deps"], scratch, output)


def _install_for_other(order: Order, scratch: str, folder: str, output: IO[bytes]) -> Older:
    """Install by the interpreter's own pip."""
    _pip(order, order.python, ["--target", folder], scratch, output)
    os.makedirs(folder, exist_ok=True)
    return {}


def _pip(order: Order, python: str, more: Sequence[str], scratch: str, output: IO[bytes]) -> None:
    options = ["-r", "requirements.txt"]
    options += ["--require-hashes"] if order.is_locked else ["-c", "constraints.txt"]
    start = output.tell()
    command = [python, "-m", "pip", "install", "--no-input", *order.sources, *options, *more]
    code = call(command, scratch, output)
    if code:
        raise _error(order, "pip", code, _text(output, start))


def _files(text: str) -> Iterator[Tuple[str, str]]:
    """Yield name and version of each file that pip looked at (PEP 427, PEP 625)."""
    for word in text.replace("/", " ").split():
        name, _, version = word.replace(".metadata", "").partition("-")
        if version.endswith(".whl"):
            yield requirements.normalized(name), version.partition("-")[0]
        elif version.endswith((".tar.gz", ".zip")):
            yield requirements.normalized(name), version.rpartition(".tar" if "tar" in version else ".zip")[0]


def _tried(text: str) -> Older:
    """Return what pip installed although it had looked at a newer release."""
    newest: Dict[str, str] = {}
    for name, version in _files(text):
        if _is_older(newest.setdefault(name, version), version):
            newest[name] = version
    _, _, installed = text.rpartition("Successfully installed ")
    versions = [word.rpartition("-")[::2] for word in installed.partition("\n")[0].split()]
    return _compared({requirements.normalized(name): version for name, version in versions}, newest)


def _compared(versions: Mapping[str, str], others: Mapping[str, str]) -> Older:
    both = {name: (version, others.get(name, version)) for name, version in versions.items()}
    return {name: pair for name, pair in both.items() if _is_older(*pair)}


def _is_older(version: str, other: str) -> bool:
    from packaging.version import InvalidVersion, Version  # as in worker/requirements.py

    try:
        return Version(version) < Version(other)
    except InvalidVersion:
        return False


def _install_by_uv(
    uv: Sequence[str], order: Order, scratch: str, folder: str, output: IO[bytes]
) -> Optional[Older]:
    """Return None if uv could not; then pip decides: only pip uses a version that no index has."""
    resolved = _resolve(uv, order, scratch, "resolved.txt", ["-c", "constraints.txt"])
    if resolved is None:
        return None
    present = {**order.aliases, **order.image}
    missing = [line for line in resolved if _pinned(line) not in present.items()]
    if _FOR_TPU in map(itemgetter(0), map(_pinned, resolved)):
        missing = [line for line in missing if _pinned(line)[0] != _TENSORFLOW]
    with open(os.path.join(scratch, "missing.txt"), "w", encoding="utf-8") as stream:
        stream.write("".join(line + "\n" for line in [*order.origins, *missing]))
    os.makedirs(folder)
    if not missing:
        return {}
    target = [*order.sources, "--target", folder, "--python", order.python, "--no-deps"]
    if call([*uv, "pip", "install", *target, "-r", "missing.txt"], scratch, output):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    free = _resolve(uv, order, scratch, "free.txt", []) if order.held else None
    return _compared(_versions(missing), _versions(free or ()))


def _resolve(
    uv: Sequence[str], order: Order, scratch: str, file: str, options: Sequence[str]
) -> Optional[List[str]]:
    """Return the lines of a resolution that prefers what the image has; None where there is none."""
    path = os.path.join(scratch, file)
    with open(path, "w", encoding="utf-8") as stream:  # uv prefers what its output file names
        stream.write("".join("%s==%s\n" % pair for pair in sorted(order.image.items())))
    options = [*order.sources, "--quiet", "--no-header", "--no-annotate", "--python", order.python, *options]
    if call([*uv, "pip", "compile", *options, "-o", path, "requirements.txt"], scratch, None):
        return None
    with open(path, encoding="utf-8") as stream:
        return [line for line in stream.read().splitlines() if line and not line.startswith((" ", "#"))]


def _versions(lines: Sequence[str]) -> Dict[str, str]:
    return {name: version for name, version in map(_pinned, lines) if version}


def _pinned(line: str) -> "tuple[str, str]":
    """Name and version of a line of a resolution; a URL has no version."""
    name, _, version = line.partition("==")
    return requirements.normalized(name.strip()), version.partition(";")[0].strip()


def _uv() -> Sequence[str]:
    """Return how uv is called here; nothing without it, and where pip has sources that uv does not read."""
    files = [os.path.expanduser(path) for path in _PIP_FILES]
    if any(os.environ.get(name) for name in _PIP_SOURCES) or any(map(os.path.exists, files)):
        return ()
    return find_uv()


def find_uv() -> Sequence[str]:
    """Return how the host's own uv is called; nothing without one."""
    import importlib.util  # slow, and most scripts require nothing

    if importlib.util.find_spec("uv"):
        return (sys.executable, "-m", "uv")
    own = os.path.expanduser("~/.local/bin/uv")
    path = own if os.access(own, os.X_OK) else shutil.which("uv")
    return (path,) if path else ()


_IMAGE = "tpuctl-image.pth"


def _environment(place: str) -> "tuple[str, str]":
    """Make a virtual environment that shows this Python's packages; return its Python and packages folder."""
    venv.EnvBuilder(symlinks=True).create(place)
    python = os.path.join(place, "bin", "python")
    version = "python%d.%d" % sys.version_info[:2]
    packages = os.path.join(place, "lib", version, "site-packages")
    own = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    own.update([os.path.join(path, "lib-dynload") for path in own])
    with open(os.path.join(packages, _IMAGE), "w", encoding="utf-8") as stream:
        for path in sys.path:
            if os.path.isdir(path) and os.path.realpath(path) not in own:
                stream.write("import site; site.addsitedir(%r)\n" % os.path.abspath(path))
    return python, packages


def _stub(packages: str, name: str, version: str) -> str:
    """Have pip take a distribution for installed."""
    folder = os.path.join(packages, "%s-%s.dist-info" % (name.replace("-", "_"), version))
    os.makedirs(folder)
    with open(os.path.join(folder, "METADATA"), "w", encoding="utf-8") as stream:
        stream.write("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
    return folder


def call(
    command: Sequence[str], folder: str, output: Optional[IO[bytes]], more: Optional[Mapping[str, str]] = None
) -> int:
    """Run an installer in a folder, with more variables, and return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name not in _PIP_PLACES}
    environment.update(more or {})
    stream = output or subprocess.DEVNULL
    return subprocess.call(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
    )


def _text(output: IO[bytes], start: int) -> bytes:
    with open(output.name, "rb") as stream:
        stream.seek(start)
        return stream.read()


def _error(order: Order, tool: str, code: int, text: bytes) -> Exception:
    if _NO_SPACE.search(text):
        return OSError(28, "no space on the disk for %s (see the log)" % order.names)
    if _WRONG_HASH in text:
        return InstallError(
            "a file for %s does not have the hash that it should have (see the log)" % order.names
        )
    conflict = _conflict(text.decode("utf-8", "replace"), order.pins)
    if conflict:
        return InstallError("%s (see the log)" % conflict)
    return InstallError("%s could not install %s (exit code %d, see the log)" % (tool, order.names, code))


def _conflict(text: str, pins: Mapping[str, str]) -> str:
    """Return the sentence for a requirement that the image's versions do not allow, or pins, or ""."""
    held: List[str] = []
    for name, version in _HELD.findall(text):
        is_pinned = requirements.normalized(name) in pins
        holder = "the run is pinned to" if is_pinned else "the host's image has"
        held.append("%s %s %s" % (holder, name, version))
        for package, release, required, specifier in _DEPENDS.findall(text):
            if requirements.normalized(required) == requirements.normalized(name):
                return "%s %s requires %s%s, and %s. %s" % (
                    package, release, required, specifier, held[-1], _ADVICE % name,
                )  # fmt: skip
    return "%s, which other requirements do not allow. %s" % (held[0], _ADVICE % "it") if held else ""


_ADVICE = 'Name %s in dependencies to hide the image\'s, or set packages = "own" in [tool.tpuctl]'
