"""Says which packages somebody else has to install: what the script needs, at the versions that it had."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpuctl.errors import StateError
from tpuctl.flows.runs.code.imports import import_statements
from tpuctl.flows.runs.record.packages import is_pin
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
SUBMIT_ANEW = "Submit the script from your own files: tpuctl submit"


@dataclass(frozen=True)
class PinnedPackages:
    """The lines of requirements.txt and constraints.txt."""

    requirements: tuple[str, ...]
    """What the script asks for, and what it imports of the image."""
    constraints: tuple[str, ...]
    """The version of every package that it could import: pip installs only what is required."""
    unnamed: tuple[str, ...] = ()
    """Packages without a line: they came from an address that only the host names, and from no index."""


def pinned_packages(
    record: Run, header: Header, environment: HostEnvironment | None, sources: Iterable[bytes]
) -> PinnedPackages:
    """Return the packages of a run; `sources` is its code, whose imports name packages of the image.

    Every line is a requirement of PEP 508 that the record or the header has, or a name with a version:
    anybody may have written what the host says. Raises StateError for a record that asks for something else.
    """
    versions = environment.resolved if environment else dict(record.pins)
    urls = environment.urls if environment else {}
    asked = [_requirement(text, record) for text in record.dependencies or header.dependencies]
    lines = {requirement.name: _pinned(requirement, versions) for requirement in asked}
    needed = {*(environment.installed if environment else ()), *record.pins}
    if environment:
        needed |= set(_imported(sources)) & environment.image.keys()
    unnamed = (needed & urls.keys()) - lines.keys()
    for name in needed - lines.keys() - unnamed:
        if name in versions and is_pin(name, versions[name]):
            lines[name] = f"{name}=={versions[name]}"
    constraints = (
        f"{name}=={version}"
        for name, version in sorted(versions.items())
        if name not in urls and is_pin(name, version)
    )
    pinned = tuple(line for _, line in sorted(lines.items()))
    return PinnedPackages(pinned, tuple(constraints), tuple(sorted(unnamed)))


def _requirement(text: str, record: Run) -> Requirement:
    try:
        return requirements.parse(text)
    except requirements.RequirementError as error:
        raise StateError(
            f"The record of run '{record.run}' is wrong: {error}.", hint=SUBMIT_ANEW, run=record.run
        ) from error


def _pinned(requirement: Requirement, versions: dict[str, str]) -> str:
    """Return a requirement at its version; a URL goes without user and password."""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    if requirement.url:
        url = re.sub("//[^/]*@", "//", requirement.url)
        return f"{requirement.name}{extras} @ {url}{' ' * bool(marker)}{marker}"
    version = versions.get(requirement.name, "")
    if version and is_pin(requirement.name, version):
        return f"{requirement.name}{extras}=={version}{marker}"
    return requirement.text


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
