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
from types import MappingProxyType
from typing import IO, Dict, List, Mapping, NamedTuple, Optional, Sequence

from tpuctl.host.worker import requirements


class InstallError(Exception):
    """The text says what could not be installed, and why."""


class Order(NamedTuple):
    """What is installed, and what it must fit."""

    names: str
    """The requirements for a message."""
    lines: Sequence[str]
    """Of pip's requirements file; URLs may hold passwords, so no command line shows them."""
    image: Dict[str, str]
    """Versions that stay: of what the image has. Empty where everything is installed anew."""
    aliases: Dict[str, str]
    """Names that a distribution of another name stands for, with its version."""
    is_locked: bool = False
    """Whether each line has hashes, and nothing but these lines is installed."""
    wheelhouse: str = ""
    """Folder of wheels, the only place that packages come from; empty for the host's own index."""
    find_links: Sequence[str] = ()
    """Pages of packages besides the host's own index."""
    pins: Mapping[str, str] = MappingProxyType({})
    """Versions that packages get whatever the image has: those of the run that this one repeats."""

    @property
    def sources(self) -> List[str]:
        """Options of pip and uv that say where packages come from."""
        if self.wheelhouse:
            return ["--no-index", "--find-links", self.wheelhouse]
        return [word for page in self.find_links for word in ("--find-links", page)]

    @property
    def constraints(self) -> str:
        """The file that holds an installer to the image, and to what is pinned."""
        versions = {**self.aliases, **self.image, **self.pins}
        return "".join("%s==%s\n" % pair for pair in sorted(versions.items()))


_WRONG_HASH = b"DO NOT MATCH THE HASHES"
"""pip's message for a file of another content; it has no exit code of its own for that."""
_NO_SPACE = re.compile(rb"No space left on device|Disk quota exceeded")
_HELD = re.compile(r"The user requested \(constraint\) ([A-Za-z0-9._-]+)==(\S+)")
_DEPENDS = re.compile(r"^[ \t]+(\S+) (\S+) depends on ([A-Za-z0-9._-]+)(.*)$", re.MULTILINE)
"""How pip's resolver tells a conflict."""
_PIP_SOURCES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE")
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_PIP_PLACES = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER")


def install(order: Order, folder: str, output: IO[bytes]) -> None:
    """Install into the new `folder`, whose parent is a scratch folder of ours; tools write to `output`.

    Raises InstallError.
    """
    scratch = os.path.dirname(folder)
    with open(os.path.join(scratch, "requirements.txt"), "w", encoding="utf-8") as stream:
        stream.write("".join(line + "\n" for line in order.lines))
    with open(os.path.join(scratch, "constraints.txt"), "w", encoding="utf-8") as stream:
        stream.write(order.constraints)
    uv = _uv()
    if uv and not order.is_locked and _install_by_uv(uv, order, scratch, folder, output):
        return
    _install_by_pip(order, scratch, folder, output)


def _install_by_pip(order: Order, scratch: str, folder: str, output: IO[bytes]) -> None:
    python, packages = _environment(os.path.join(scratch, "environment"))
    stubs = [_stub(packages, name, version) for name, version in order.aliases.items()]
    options = ["-r", "requirements.txt"]
    options += ["--require-hashes"] if order.is_locked else ["-c", "constraints.txt"]
    options += [] if order.image else ["--ignore-installed"]
    start = output.tell()
    code = _call([python, "-m", "pip", "install", "--no-input", *order.sources, *options], scratch, output)
    if code:
        raise _error(order, "pip", code, _text(output, start))
    for stub in stubs:
        shutil.rmtree(stub, ignore_errors=True)
    os.remove(os.path.join(packages, _IMAGE))
    os.rename(packages, folder)


def _install_by_uv(uv: Sequence[str], order: Order, scratch: str, folder: str, output: IO[bytes]) -> bool:
    """Return whether uv could; if not, pip decides: only pip uses a version that no index has."""
    resolved = os.path.join(scratch, "resolved.txt")
    options = [*order.sources, "--quiet", "--no-header", "--no-annotate", "--python", sys.executable]
    resolve = [*uv, "pip", "compile", *options, "-c", "constraints.txt", "-o", resolved, "requirements.txt"]
    if _call(resolve, scratch, None):
        return False
    with open(resolved, encoding="utf-8") as stream:
        lines = [line for line in stream.read().splitlines() if line and not line.startswith((" ", "#"))]
    present = {**order.aliases, **order.image}
    missing = [line for line in lines if _pinned(line) not in present.items()]
    with open(resolved, "w", encoding="utf-8") as stream:
        stream.write("".join(line + "\n" for line in missing))
    os.makedirs(folder)
    if not missing:
        return True
    target = [*order.sources, "--target", folder, "--python", sys.executable, "--no-deps", "-r", resolved]
    code = _call([*uv, "pip", "install", *target], scratch, output)
    if code:
        shutil.rmtree(folder, ignore_errors=True)
    return not code


def _pinned(line: str) -> "tuple[str, str]":
    """Name and version of a line of a resolution; a URL has no version."""
    name, _, version = line.partition("==")
    return requirements.normalized(name.strip()), version.partition(";")[0].strip()


def _uv() -> Sequence[str]:
    """Return how uv is called here; nothing without it, and where pip has sources that uv does not read."""
    files = [os.path.expanduser(path) for path in _PIP_FILES]
    if any(os.environ.get(name) for name in _PIP_SOURCES) or any(map(os.path.exists, files)):
        return ()
    import importlib.util  # noqa: PLC0415  slow, and most scripts require nothing

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


def _call(command: Sequence[str], folder: str, output: Optional[IO[bytes]]) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in _PIP_PLACES}
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
        holder = "the run that this one repeats had" if is_pinned else "the host's image has"
        held.append("%s %s %s" % (holder, name, version))
        for package, release, required, specifier in _DEPENDS.findall(text):
            if requirements.normalized(required) == requirements.normalized(name):
                return "%s %s requires %s%s, and %s. %s" % (
                    package, release, required, specifier, held[-1], _ADVICE % name,
                )  # fmt: skip
    return "%s, which other requirements do not allow. %s" % (held[0], _ADVICE % "it") if held else ""


_ADVICE = 'Name %s in dependencies to hide the image\'s, or set packages = "own" in [tool.tpuctl]'
