"""Says which packages somebody else has to install: what the script needs, at the versions that it had."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpuctl.flows.runs.code.imports import import_statements
from tpuctl.job_header import Header
from tpuctl.provenance.records import HostEnvironment
from tpuctl.runs import Run
from tpuctl.worker import requirements
from tpuctl.worker.requirements import Requirement, normalized

OTHER_NAMES = {
    "cv2": "opencv-python", "pil": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "yaml": "pyyaml",
}  # fmt: skip
"""Module -> the package that has it, where that is called otherwise."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True)
class PinnedPackages:
    """The lines of requirements.txt and constraints.txt."""

    requirements: tuple[str, ...]
    """What the script asks for, and what it imports of the image."""
    constraints: tuple[str, ...]
    """The version of every package that it could import: pip installs only what is required."""


def pinned_packages(
    record: Run, header: Header, environment: HostEnvironment | None, sources: Iterable[bytes]
) -> PinnedPackages:
    """Return the packages of a run; `sources` is its code, whose imports name packages of the image."""
    versions = environment.resolved if environment else dict(record.pins)
    urls = environment.urls if environment else {}
    lines = {}
    for text in record.dependencies or header.dependencies:
        requirement = requirements.parse(text)
        lines[requirement.name] = _pinned(requirement, versions)
    needed = {*(environment.installed if environment else ()), *record.pins}
    if environment:
        needed |= set(_imported(sources)) & environment.image.keys()
    for name in needed - lines.keys():
        if name in urls:
            lines[name] = f"{name} @ {urls[name]}"
        elif name in versions and _is_plain(name, versions[name]):
            lines[name] = f"{name}=={versions[name]}"
    constraints = (
        f"{name}=={version}"
        for name, version in sorted(versions.items())
        if name not in urls and _is_plain(name, version)
    )
    return PinnedPackages(tuple(line for _, line in sorted(lines.items())), tuple(constraints))


def _pinned(requirement: Requirement, versions: dict[str, str]) -> str:
    """Return a requirement at its version; a URL goes without user and password."""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    if requirement.url:
        url = re.sub("//[^/]*@", "//", requirement.url)
        return f"{requirement.name}{extras} @ {url}{' ' * bool(marker)}{marker}"
    version = versions.get(requirement.name, "")
    if version and _is_plain(requirement.name, version):
        return f"{requirement.name}{extras}=={version}{marker}"
    return requirement.text


def _is_plain(name: str, version: str) -> bool:
    """Whether a name and a version from a host are such, and no option of pip."""
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))


def _imported(sources: Iterable[bytes]) -> Iterator[str]:
    """Yield the packages that code imports, by the names of its modules."""
    for source in sources:
        for statement in import_statements(source):
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            else:
                names = [statement.module or ""]
            for name in names:
                module = normalized(name.partition(".")[0])
                yield OTHER_NAMES.get(module, module)
