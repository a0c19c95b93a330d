"""Lays what hosts have beside the table of images, and writes the report of `doctor --live`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from tpuctl import __version__, images
from tpuctl.accelerators import Accelerator
from tpuctl.config import Config
from tpuctl.errors import HostError
from tpuctl.flows.project.doctor import DIFFERENT, FAILED, MARKS, OK, Finding
from tpuctl.images import Image
from tpuctl.masking import masked
from tpuctl.printable import line

Facts = Mapping[str, object]
"""What `tpuctl/host/facts.py` prints on a host."""
FRAMEWORKS = ("jax", "jaxlib", "libtpu", "tensorflow", "tensorflow-tpu", "torch", "torch-xla")
"""Distributions that an image has only if the table says so."""
NONE = "none"
OF_THE_MACHINE = ("system", "pip", "docker")
"""Facts that simulated hosts have of the machine that they are on."""
SHORTEST = 3
"""Fewest characters of a value that is taken out of the report."""
ACCOUNT = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+[\w.-]*")
ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}"
)
PRIVATE = (
    "project", "bucket", "data_bucket", "owner", "service_account", "ssh_user", "ssh_key", "network",
    "subnetwork",
)  # fmt: skip
"""Settings whose values no report has."""
PLAIN = ("default", "root")
"""Values that name nobody."""


@dataclass(frozen=True)
class Expected:
    """What the hosts of a TPU should have."""

    image: Image
    accelerator: Accelerator
    python: str = ""
    """Version of python3 that simulated hosts have in the place of their image's; empty for the image's."""
    is_simulated: bool = False

    def of(self, worker: int) -> Mapping[str, str]:
        """Return what the table says of a worker, fact by fact."""
        return {
            "system": self.image.system,
            "python": self.python or self.image.python,
            "pip": self.image.packages.get("pip", NONE),
            "sudo": _answer(self.image.sudo),
            "docker": _answer(self.image.docker),
            "libtpu": _answer(self.image.libtpu),
            "devices": _listed(images.devices(self.accelerator)),
            "holders": self.image.holder or NONE,
            "lock file": NONE,
            "worker": str(worker),
        }


def command(image: Image) -> tuple[str, ...]:
    """Return the words that print a host's facts there."""
    source = resources.files("tpuctl").joinpath("host", "facts.py").read_text()
    return ("python3", "-c", source, *dict.fromkeys((*image.packages, *FRAMEWORKS)))


def read(worker: int, output: str) -> Facts:
    """Return the facts in what a host printed; raises HostError for something else."""
    try:
        facts = json.loads(output.splitlines()[-1])
        return {str(name): value for name, value in facts.items()}
    except (ValueError, IndexError, AttributeError) as error:
        raise HostError(f"worker {worker} did not say what it has: {line(output[-200:])}") from error


def compare(hosts: Mapping[int, Facts], expected: Expected) -> list[Finding]:
    """Return a finding for each fact of hosts, by worker; one for all of them where they say the same."""
    found = [list(_compared(worker, facts, expected)) for worker, facts in hosts.items()]
    merged = list[Finding]()
    for same in zip(*found, strict=True):
        if len({(each.state, _own(each, worker)) for worker, each in zip(hosts, same, strict=True)}) == 1:
            merged.append(same[0] if len(hosts) == 1 else replace(same[0], text=_of_all(same)))
        else:
            merged += [
                replace(each, text=f"worker {worker}: {each.text}")
                for worker, each in zip(hosts, same, strict=True)
            ]
    return merged


def _own(finding: Finding, worker: int) -> str:
    """Return a text that is the same for all workers where each has its own number."""
    return "its own" if finding.check == "worker" and finding.text == str(worker) else finding.text


def _of_all(same: Sequence[Finding]) -> str:
    return f"0 to {len(same) - 1}" if same[0].check == "worker" else same[0].text


def _compared(worker: int, facts: Facts, expected: Expected) -> Iterator[Finding]:
    table = expected.of(worker)
    for check, wanted in table.items():
        seen = _listed(facts.get(check, NONE))
        is_of_machine = expected.is_simulated and check in OF_THE_MACHINE and seen != NONE
        if seen == wanted or seen.startswith((f"{wanted}.", f"{wanted} ")):
            stands_in = check == "python" and expected.python
            other = f", the simulator's: the image has {expected.image.python}" if stands_in else ""
            yield Finding(check, OK, seen + other)
        elif is_of_machine:
            yield Finding(check, OK, f"{seen}, of this machine: the image has {wanted}")
        else:
            whose = "the simulator" if check == "python" and expected.python else "the table"
            yield Finding(check, DIFFERENT, f"{seen}; {whose} says {wanted}")
    yield _packages(facts, expected)
    others = {check: value for check, value in facts.items() if check not in (*table, "packages")}
    yield from (Finding(check, OK, _listed(value)) for check, value in others.items())


def _packages(facts: Facts, expected: Expected) -> Finding:
    packages = facts.get("packages")
    present = packages if isinstance(packages, dict) else {}
    table = expected.image.packages
    texts = [
        f"{name} {present[name]} is there" for name in FRAMEWORKS if name in present and name not in table
    ]
    if not expected.is_simulated:
        texts += [f"{name} is missing" for name in table if name not in present]
        texts += [
            f"{name} {present[name]} ({version} in the table)"
            for name, version in table.items()
            if present.get(name, version) != version
        ]
    if texts:
        return Finding("packages", DIFFERENT, ", ".join(texts))
    whose = ", versions of this machine" if expected.is_simulated else ""
    return Finding("packages", OK, f"{len(present)} of the {len(table)} of the table{whose}")


def _answer(value: object) -> str:
    return "yes" if value else "no"


def _listed(value: object) -> str:
    """Return a fact as text."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or NONE
    return str(value)


Stages = Mapping[str, Sequence[Finding]]
"""The title of each stage -> what it found."""


def report(config: Config, stages: Stages, began: str) -> str:
    """Return the report in Markdown: no secrets, addresses, or names of accounts, projects and buckets."""
    found = [finding for findings in stages.values() for finding in findings]
    lines = [
        "# tpuctl doctor --live",
        "",
        f"tpuctl {__version__}, target {config.target}, {began}",
        "",
        "## Differences and failures",
        "",
        *(
            [f"- {each.check}: {each.text}" for each in found if each.state in (DIFFERENT, FAILED)]
            or ["None."]
        ),
    ]
    for title, findings in stages.items():
        lines += ["", f"## {title}", "", "| check | result | what |", "|---|---|---|"]
        lines += [f"| {each.check} | {MARKS[each.state]} | {_cell(each.text)} |" for each in findings]
    return "".join(f"{text}\n" for text in _without_names(lines, config))


def _cell(text: str) -> str:
    return line(text).replace("|", "\\|")


def _without_names(lines: Iterable[str], config: Config) -> Iterator[str]:
    private = {str(Path.home()): "HOME"}
    for setting in PRIVATE:
        value = config.values[setting].value or ""
        if len(value) >= SHORTEST and value not in PLAIN:
            private.setdefault(value, setting.upper())
    names = sorted(private, key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names))
    for text in lines:
        named = pattern.sub(lambda match: private[match[0]], text)
        yield ADDRESS.sub("ADDRESS", ACCOUNT.sub("ACCOUNT", masked(named)))
