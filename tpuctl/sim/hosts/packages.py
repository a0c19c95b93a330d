"""Gives simulated hosts packages of this machine: a folder of links to chosen distributions, and to no other.

`find_spec` and `importlib.metadata` then tell on a host what it has. A regular package is one link, a
namespace package such as `google` is a folder with links to what the chosen distributions have in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

PROGRAMS = "bin"
"""In a folder of links: what runs the distributions' console scripts, by the first python3 in PATH."""
SCRIPT = """\
#!/usr/bin/env python3
import sys
from {module} import {function}
sys.exit({call}())
"""
PIP = SCRIPT.format(module="pip._internal.cli.main", function="main", call="main")
LIBTPU = "libtpu"
TENSORFLOW_TPU = "tensorflow-tpu"
TENSORFLOW_TPU_REQUIRES = ("tensorboard",)
"""Its newest release, 2.20, requires it, and TensorFlow from 2.21 on does not (PyPI)."""
TENSORFLOWS = ("tensorflow", "tensorflow-cpu")
MODULE_OF_LIBTPU = '''\
"""Stands for the library of chips, which the emulated TPU has not."""

import os


def get_library_path():
    return os.path.join(os.path.dirname(__file__), "libtpu.so")


def configure_library_path():
    """What releases of JAX up to 0.4 call."""
'''


@dataclass(frozen=True)
class Distribution:
    """An installed distribution: `info` is the folder of its metadata, `base` that of its files."""

    name: str
    version: str
    info: Path
    base: Path

    @cached_property
    def files(self) -> list[str]:
        """The paths of its files from `base`; those of programs begin with `..`."""
        lines = (self.info / "RECORD").read_text(errors="surrogateescape").splitlines()
        return [line.rsplit(",", 2)[0].strip('"') for line in lines if line.count(",") >= 2]

    @cached_property
    def requires(self) -> list[Requirement]:
        """What it requires on this machine or with an extra."""
        return [found for text in self._metadata.requires or () if (found := _parsed(text))]

    @property
    def entry_points(self) -> Iterator[metadata.EntryPoint]:
        """Its console scripts."""
        return (entry for entry in self._metadata.entry_points if entry.group == "console_scripts")

    @cached_property
    def _metadata(self) -> metadata.Distribution:
        return metadata.Distribution.at(self.info)


@dataclass(frozen=True)
class Chosen:
    """Distributions of this machine that fulfil requirements, and the requirements that none fulfils."""

    names: frozenset[str]
    missing: tuple[str, ...]


class Packages:
    """The distributions of this Python's folders, and folders of links to them below `folder`."""

    def __init__(self, folder: Path, paths: Sequence[str] | None = None) -> None:
        self._folder = folder
        self.distributions = dict(_of_machine(tuple(sys.path if paths is None else paths)))
        self.distributions.update(self._stand_ins())

    def image(self, names: Iterable[str]) -> Path:
        """Return the folder with an image's distributions, as far as this machine has them."""
        requirements = [Requirement(name) for name in names if canonicalize_name(name) in self.distributions]
        farm = self.links(self.choose(requirements).names)
        return farm if "pip" in self.distributions else self._with_bundled_pip(farm)

    def choose(
        self,
        requirements: Iterable[Requirement],
        constraints: Mapping[str, SpecifierSet] | None = None,
        present: Mapping[str, str] | None = None,
    ) -> Chosen:
        """Return what fulfils requirements and what those require, within `constraints`.

        What is `present` already, name -> version, is not chosen again, in a version that fits.
        """
        held, there = constraints or {}, present or {}
        names, missing = set[str](), list[str]()
        seen, waiting = set[tuple[str, str]](), list(requirements)
        while waiting:
            requirement = waiting.pop()
            name = canonicalize_name(requirement.name)
            found = self.distributions.get(name)
            fits = requirement.specifier & held.get(name, SpecifierSet())
            version = there.get(name) or (found.version if found else "")
            if requirement.url or not version or not fits.contains(version, prereleases=True):
                missing.append(str(requirement))
                continue
            if name not in there:
                names.add(name)
            new = [extra for extra in ("", *requirement.extras) if (name, extra) not in seen]
            seen.update((name, extra) for extra in new)
            waiting += [each for each in found.requires if _applies(each, new)] if found and new else []
        return Chosen(frozenset(names), tuple(missing))

    def links(self, names: Iterable[str]) -> Path:
        """Return the folder of links to these distributions; it is made once for each set of them."""
        chosen = [self.distributions[name] for name in sorted(names)]
        content = json.dumps([[each.name, each.version, str(each.info), sys.version] for each in chosen])
        farm = self._folder / hashlib.sha256(content.encode()).hexdigest()[:32]
        if not farm.is_dir():
            self._make(farm, chosen)
        return farm

    def _make(self, farm: Path, chosen: Sequence[Distribution]) -> None:
        by_base: dict[Path, list[str]] = {}
        with self._making(farm) as draft:
            (draft / PROGRAMS).mkdir()
            for distribution in chosen:
                by_base.setdefault(distribution.base, []).extend(_inside(distribution))
                for entry in distribution.entry_points:
                    _write_program(draft / PROGRAMS / entry.name, entry)
                (draft / distribution.info.name).symlink_to(distribution.info)
            for base, files in by_base.items():
                _link(base, draft, files)

    def _with_bundled_pip(self, farm: Path) -> Path:
        """Add the pip of Python itself to a folder, for a machine without one."""
        import ensurepip  # noqa: PLC0415  some systems have it in a package of its own

        place = farm.with_name(f"{farm.name}-pip")
        if not place.is_dir():
            with self._making(place) as draft:
                shutil.copytree(farm, draft, symlinks=True, dirs_exist_ok=True)
                for wheel in (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"):
                    with zipfile.ZipFile(wheel) as archive:
                        archive.extractall(draft)
                (draft / PROGRAMS / "pip").write_text(PIP)
                (draft / PROGRAMS / "pip").chmod(stat.S_IRWXU)
        return place

    def _stand_ins(self) -> Iterator[tuple[str, Distribution]]:
        """What the emulated TPU stands for: libtpu as JAX takes it, and TensorFlow's build for TPUs.

        Each host would else download hundreds of MB for chips that it does not have.
        """
        jax = self.distributions.get("jax")
        version = _lowest(jax.requires) if jax else ""
        if version and LIBTPU not in self.distributions:
            yield LIBTPU, self._stand_in(LIBTPU, version, {f"{LIBTPU}/__init__.py": MODULE_OF_LIBTPU})
        found = next((self.distributions[name] for name in TENSORFLOWS if name in self.distributions), None)
        if found and TENSORFLOW_TPU not in self.distributions:
            yield TENSORFLOW_TPU, self._stand_in(TENSORFLOW_TPU, found.version, {}, found)

    def _stand_in(
        self, name: str, version: str, files: Mapping[str, str], original: Distribution | None = None
    ) -> Distribution:
        """Write a distribution; with an `original` it has that one's files and requirements."""
        place = self._folder / f"{name}-{version}"
        info = Path(f"{name.replace('-', '_')}-{version}.dist-info")
        if not place.is_dir():
            needed = [*original.requires, *TENSORFLOW_TPU_REQUIRES] if original else []
            requires = "".join(f"Requires-Dist: {each}\n" for each in needed)
            names = [*files, *(_inside(original) if original else ())]
            content = {
                **files,
                str(
                    info / "METADATA"
                ): f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
                str(info / "INSTALLER"): "tpuctl\n",
                str(info / "RECORD"): "".join(f"{each},,\n" for each in names),
            }
            with self._making(place) as draft:
                for path, text in content.items():
                    (draft / path).parent.mkdir(exist_ok=True)
                    (draft / path).write_text(text, errors="surrogateescape")
        return Distribution(name, version, place / info, original.base if original else place)

    @contextmanager
    def _making(self, place: Path) -> Iterator[Path]:
        """Yield a folder that gets its name when it is complete; of two at once the first one stays."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{place.name}.new-", dir=self._folder))
        yield draft
        try:
            draft.rename(place)
        except OSError:
            shutil.rmtree(draft)


@cache
def _of_machine(paths: tuple[str, ...]) -> dict[str, Distribution]:
    """Distributions by normalized name, the first of each: it is the one that is imported.

    Those that are imported from another place, as projects in development are, cannot be linked.
    """
    found: dict[str, Distribution] = {}
    for base in map(Path, paths):
        for info in sorted(base.glob("*.dist-info")) if base.is_dir() else ():
            name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            key = canonicalize_name(name)
            if name and key not in found and (info / "RECORD").exists() and not _is_editable(info):
                found[key] = Distribution(key, version, info, base)
    return found


def _is_editable(info: Path) -> bool:
    try:
        return bool(json.loads((info / "direct_url.json").read_text())["dir_info"].get("editable"))
    except (OSError, ValueError, KeyError):
        return False


def _inside(distribution: Distribution) -> Iterator[str]:
    """Its files but programs, metadata, and compiled ones, which go with their folder."""
    outside = ("..", "/", f"{distribution.info.name}/", "__pycache__/")
    return (path for path in distribution.files if not path.startswith(outside))


def _link(source: Path, target: Path, files: Iterable[str]) -> None:
    """Link files in another folder: a regular package whole, unless others have put files into it."""
    children: dict[str, list[str]] = {}
    for path in files:
        child, _, rest = path.partition("/")
        children.setdefault(child, []).append(rest)
    for child, rests in children.items():
        origin, place = source / child, target / child
        if not os.path.lexists(origin):
            continue
        if not origin.is_dir() or _is_alone(origin, rests):
            if not os.path.lexists(place):
                place.symlink_to(origin)
        else:
            place.mkdir(exist_ok=True)
            _link(origin, place, rests)


def _is_alone(folder: Path, files: Sequence[str]) -> bool:
    """Whether a folder is a regular package and holds nothing but these files' parts."""
    known = {path.partition("/")[0] for path in files} | {"__pycache__"}
    return "__init__.py" in known and known.issuperset(os.listdir(folder))


def _write_program(path: Path, entry: metadata.EntryPoint) -> None:
    function = entry.attr.partition(".")[0]
    path.write_text(SCRIPT.format(module=entry.module, function=function, call=entry.attr))
    path.chmod(stat.S_IRWXU)


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def _lowest(requirements: Iterable[Requirement]) -> str:
    """Return the lowest version of libtpu that JAX takes for its extra `tpu`; empty for none."""
    versions = [
        specifier.version.removesuffix(".*")
        for requirement in requirements
        if requirement.name == LIBTPU and requirement.marker and requirement.marker.evaluate({"extra": "tpu"})
        for specifier in requirement.specifier
        if specifier.operator in ("==", ">=", "~=")
    ]
    return min(versions, key=Version, default="")
