"""Tells which distributions the host's image has, and which requirements they fulfil."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence

from tpuctl.host.worker import requirements
from tpuctl.host.worker.requirements import Requirement

if TYPE_CHECKING:
    from importlib import metadata

_EXTRA = re.compile(r"""extra[ \t]*==[ \t]*["']([^"']+)["']""")
_DEEPEST = 5
"""Extras that require extras are followed this far."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FRAMEWORK = re.compile(
    r"jax|jaxlib|libtpu(-nightly)?|torch|torch-xla|torch-tpu|(tensorflow|tf-nightly)(-.*)?|(tf-)?keras(-nightly)?"
)
_COMPANIONS = ("numpy",)
"""Compiled code of a framework fits one generation of these, whether its metadata says so or not."""
SYSTEM = "/usr/lib/python3/dist-packages"
"""Where Debian and Ubuntu put the Python packages of the operating system (Debian Python Policy, 2.5)."""


def is_present(requirement: Requirement, depth: int = 0) -> bool:
    """Return whether the image fulfils a requirement: by its distribution, or by one with its module."""
    if requirement.url or depth > _DEEPEST:
        return False  # the installer decides
    version = installed_version(requirement.name)
    if version is None:
        return not requirement.specifier and not requirement.extras and _has_module(requirement.name)
    extras = (_parsed_extra(requirement.name, extra) for extra in requirement.extras)
    return requirements.accepts(requirement.specifier, version) and all(
        child is not None and is_present(child, depth + 1) for children in extras for child in children
    )


def described(requirement: Requirement) -> str:
    """Return a requirement for a message, with the version that does not fulfil it."""
    version = installed_version(requirement.name)
    if requirement.url or version is None or requirements.accepts(requirement.specifier, version):
        return requirement.masked
    return "%s (the host has %s)" % (requirement.masked, version)


def installed_version(name: str) -> Optional[str]:
    """Return the version of a distribution, or of another distribution that has the module of this name."""
    distributions = _distributions()
    if name in distributions:
        return _field(distributions[name], "Version")
    module = _module(name)
    for distribution in distributions.values():
        if module in _modules(distribution):
            return _field(distribution, "Version")
    return None


def image_versions() -> Dict[str, str]:
    """Return names and versions of everything on the image that an installer can be told of.

    Versions from before PEP 440 are left out: installers refuse a file that names them.
    """
    versions_of = {name: _field(item, "Version") for name, item in _distributions().items()}
    return {name: version for name, version in versions_of.items() if version and _is_usable(name, version)}


def framework_versions() -> Dict[str, str]:
    """Return names and versions of the image's frameworks and of all that these require.

    What the operating system has for its own tools is left out: it is as old as the system.
    """
    distributions, held = _distributions(), set()
    left = [name for name in distributions if is_framework(name)]
    left += _COMPANIONS if left else ()
    while left:
        name = left.pop()
        if name in distributions and name not in held and not _is_of_system(distributions[name]):
            held.add(name)
            left += [child.name for child in _required(distributions[name])]
    return {name: version for name, version in image_versions().items() if name in held}


def is_framework(name: str) -> bool:
    """Whether a distribution is a framework, or the part of one that drives TPUs."""
    return bool(_FRAMEWORK.fullmatch(name))


def _required(distribution: metadata.Distribution) -> List[Requirement]:
    """What a distribution requires here, without extras."""
    from packaging.markers import Marker  # as in worker/requirements.py

    read = [_readable(text) for text in distribution.requires or ()]
    return [one for one in read if one and (not one.marker or Marker(one.marker).evaluate({"extra": ""}))]


def _is_of_system(distribution: metadata.Distribution) -> bool:
    return str(distribution.locate_file("")).rstrip(os.sep) == SYSTEM


def aliases() -> Dict[str, str]:
    """Return names of modules that a distribution of a framework brings under another name, with its version.

    TPU images bring builds of TensorFlow under other names; a package that requires `tensorflow` must not
    get a second one, which would hide the image's.
    """
    distributions = _distributions()
    result: Dict[str, str] = {}
    for own in framework_versions():
        distribution = distributions[own]
        version = _field(distribution, "Version")
        for module in _modules(distribution):
            name = requirements.normalized(module)
            if name not in distributions and version and _is_usable(name, version):
                result.setdefault(name, version)
    return result


def _is_usable(name: str, version: str) -> bool:
    from packaging.version import InvalidVersion, Version  # as in worker/requirements.py

    try:
        Version(version)
    except InvalidVersion:
        return False
    return bool(_NAME.fullmatch(name))


@lru_cache(maxsize=1)
def _distributions() -> Dict[str, metadata.Distribution]:
    """Distributions by their normalized names, the first of each name: it is the one that is imported."""
    from importlib import metadata  # slow, and most scripts require nothing

    result: Dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = _field(distribution, "Name")
        if name:  # a folder that an installation left behind has none
            result.setdefault(requirements.normalized(name), distribution)
    return result


def _field(distribution: metadata.Distribution, name: str) -> Optional[str]:
    """Return a field of the metadata, or None: there `metadata[name]` warns from Python 3.12 on."""
    values: Optional[List[str]] = distribution.metadata.get_all(name)
    return values[0] if values else None


def _modules(distribution: metadata.Distribution) -> Sequence[str]:
    return (distribution.read_text("top_level.txt") or "").split()


def _parsed_extra(name: str, extra: str) -> List[Optional[Requirement]]:
    """What an extra of an installed distribution requires; None for a requirement that cannot be read."""
    distribution = _distributions().get(name)
    children: List[Optional[Requirement]] = []
    for text in (distribution.requires if distribution else None) or ():
        match = _EXTRA.search(text)
        if match and requirements.normalized(match.group(1)) == extra:
            children.append(_readable(text))
    return children


def _readable(text: str) -> Optional[Requirement]:
    try:
        return requirements.parse(text)
    except requirements.RequirementError:
        return None


def _has_module(name: str) -> bool:
    from importlib.machinery import PathFinder

    folders = [path for path in sys.path if os.path.isdir(path)]  # this program's zip is not of the image
    return PathFinder.find_spec(_module(name), folders) is not None


def _module(name: str) -> str:
    return name.replace("-", "_")
