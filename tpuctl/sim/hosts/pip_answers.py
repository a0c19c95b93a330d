"""Answers a `pip install` on a simulated host: what it gets of this machine, and what remains for pip.

`python -m tpuctl.sim.hosts.pip_answers FOLDER` reads the question of `guest/_tpuctl_pip.py` as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tpuctl.images import image
from tpuctl.sim.hosts.packages import Packages

RUNTIME = "TPUCTL_SIM_RUNTIME"
"""The variable of a host with its runtime version."""
OWN = "{}.{}".format(*sys.version_info)
"""This machine's Python."""
FINDING = "[tpu-sim] PYTHON"
INDEX_TIMEOUT = 20
"""Seconds that a package index may take to say what a real host would get: nothing waits for it."""
PINNED = re.compile(r"^([a-z0-9-]+)==([^\s;]+)", re.MULTILINE)
FLAGS = (
    *("--upgrade", "--user", "--quiet", "--verbose", "--no-input", "--no-cache-dir", "--require-hashes"),
    *(
        "--disable-pip-version-check",
        "--break-system-packages",
        "--no-warn-script-location",
        "--prefer-binary",
    ),
    "--no-color",
)
VALUES = (
    "--progress-bar",
    "--root-user-action",
    "--timeout",
    "--retries",
    "--find-links",
    "--extra-index-url",
)
SHORT = {"--upgrade": "-U", "--quiet": "-q", "--verbose": "-v", "--find-links": "-f"}
HASH = re.compile(r"\s--hash[= ]\S+")
COMMENT = re.compile(r"(^|\s)#.*$")
OPTION = re.compile(r"(-f|--find-links|--extra-index-url|--prefer-binary)\b")
"""Lines of a requirements file that only name more sources."""


class OtherError(Exception):
    """pip is asked for what only pip does."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OtherError(message)


@dataclass
class Asked:
    """What one `pip install` asks for."""

    requirements: list[Requirement] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Files and addresses, which pip alone reads."""
    constraints: dict[str, SpecifierSet] = field(default_factory=dict)
    is_anew: bool = False
    """Whether what is installed does not count."""


def asked(arguments: Sequence[str]) -> Asked:
    """Return what the arguments of pip ask for; raises OtherError."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name in FLAGS:
        parser.add_argument(*[each for each in (SHORT.get(name), name) if each], action="store_true")
    for name in VALUES:
        parser.add_argument(*[each for each in (SHORT.get(name), name) if each], action="append")
    parser.add_argument("-I", "--ignore-installed", action="store_true")
    parser.add_argument("-r", "--requirement", action="append", default=[])
    parser.add_argument("-c", "--constraint", action="append", default=[])
    parser.add_argument("command", choices=["install"])
    parser.add_argument("packages", nargs="*")
    given = parser.parse_intermixed_args(list(arguments))
    if any("://" not in place for place in given.find_links or ()):
        raise OtherError("packages are taken from a folder alone")
    result = Asked(is_anew=given.ignore_installed)
    lines = [*given.packages, *(line for path in given.requirement for line in _lines(Path(path)))]
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            result.others.append(line)
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            result.requirements.append(requirement)
    for held in (Requirement(line) for path in given.constraint for line in _lines(Path(path))):
        result.constraints[canonicalize_name(held.name)] = held.specifier
    return result


def _lines(path: Path) -> Iterator[str]:
    """The requirements in a file, without hashes, which pip checks for what it downloads."""
    text = path.read_text(errors="surrogateescape").replace("\\\n", " ")
    for line in (COMMENT.sub("", each).strip() for each in text.splitlines()):
        if line.startswith("-") and not OPTION.match(line):
            raise OtherError(f"{path} has the option {line}")
        if line and not line.startswith("-"):
            yield HASH.sub("", f" {line}").strip()


def answer(
    packages: Packages, arguments: Sequence[str], paths: Iterable[str], python: str = OWN
) -> dict[str, object]:
    """Return the folder of links, whether anything remains for pip, and what to print; raises OtherError."""
    if python != OWN:
        raise OtherError(f"packages of Python {OWN} are not for {python}")
    question = asked(arguments)
    there = {} if question.is_anew else _versions(paths)
    chosen = packages.choose(question.requirements, question.constraints, there)
    remains = [*question.others, *chosen.missing]
    links = packages.links(chosen.names) if chosen.names else None
    names = [f"{name}-{packages.distributions[name].version}" for name in sorted(chosen.names)]
    lines = [f"Linked this machine's packages: {' '.join(names)}"] if names else []
    wanted = [str(requirement) for requirement in question.requirements] if _python_of_image() else []
    return {
        "links": str(links) if links else "",
        "remains": bool(remains) or not question.requirements,
        "lines": [*lines, *_python_of_image()] if names else [],
        "wanted": wanted if names else [],
    }


def _versions(paths: Iterable[str]) -> dict[str, str]:
    """Name -> version of what is installed in folders, the first of each name."""
    found: dict[str, str] = {}
    for info in (info for path in paths for info in Path(path).glob("*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        found.setdefault(canonicalize_name(name), version)
    return found


def _python_of_image() -> list[str]:
    """What to say where a real host has another Python than this machine."""
    found = image(os.environ.get(RUNTIME, ""))
    if found is None or found.python == OWN:
        return []
    return [
        f"{FINDING}: a real host of {found.name} has Python {found.python}, this one has {OWN}. "
        "A script that requires another gets it there. "
        f"'tpuctl sim start --python image' runs {found.python}."
    ]


def of_index(packages: Packages, wanted: Sequence[str]) -> str:
    """Return what a real host would get in other versions, by uv; empty without uv or an answer."""
    found = image(os.environ.get(RUNTIME, ""))
    if found is None or find_spec("uv") is None:
        return ""
    options = ["--quiet", "--no-header", "--no-annotate", "--python-version", found.python]
    command = [sys.executable, "-m", "uv", "pip", "compile", *options, "-"]
    try:
        ended = subprocess.run(
            command, input="\n".join(wanted), capture_output=True, text=True, timeout=INDEX_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return ""
    names = {canonicalize_name(Requirement(text).name) for text in wanted}
    others = [
        f"{name} {version} (here {own.version})"
        for name, version in PINNED.findall(ended.stdout)
        if name in names and (own := packages.distributions.get(name)) and own.version != version
    ]
    return f"{FINDING}: with Python {found.python} a real host gets {', '.join(others)}.\n" if others else ""


def main() -> None:
    """Answer one question about pip's arguments; or one to the index, about requirements that follow."""
    packages, wanted = Packages(Path(sys.argv[1])), sys.argv[2:]
    if wanted:
        sys.stdout.write(of_index(packages, wanted))
        return
    question = json.load(sys.stdin)
    try:
        result = answer(packages, question["arguments"], question["paths"], question["python"])
    except (OtherError, OSError, InvalidRequirement):
        sys.exit(1)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
