"""Says which packages a run had on its hosts, and which versions a repetition of it is held to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.flows.runs.stored_attempt import find_record
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.job_header import Header
from tpuctl.provenance.records import HostEnvironment
from tpuctl.runs import Verdict
from tpuctl.worker import requirements

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")


@dataclass(frozen=True)
class Pins:
    """Versions that packages have to have."""

    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


def environment_of(run: StoredRun, verdict: Verdict | None) -> HostEnvironment | None:
    """Return what the first host of a run's last attempt had whose script started; None where none says so.

    Attempts after the verdict's do not count. Raises BadObjectError for an object that is no such record.
    """
    for number in reversed(run.attempt_numbers(verdict)):
        attempt = run.attempt(number)
        name = run.paths.environment(number, attempt.record.workers[0])
        record = find_record(run.bucket, name, HostEnvironment)
        if record:
            return record
    return None


def pins(run: StoredRun, header: Header, verdict: Verdict | None) -> Pins:
    """Return the versions of what was installed for a script, and of what its header asks for.

    None with a lock file or a folder of wheels, which pin by themselves. A package from a URL is as the
    header has it.
    """
    record = run.record
    if record.requirements or record.wheelhouse:
        return Pins({})
    environment = environment_of(run, verdict)
    if environment is None:
        note = f"Run '{run.name}' has no record of its packages: they are resolved anew."
        is_needed = bool(header.dependencies) and not record.pins
        return Pins(record.pins, (note,) if is_needed else ())
    asked = {requirement.name for requirement in map(requirements.parse, header.dependencies)}
    names = {*environment.installed, *asked.intersection(environment.image)}
    versions = environment.resolved
    pinned = {name: versions[name] for name in sorted(names) if name not in environment.urls}
    return Pins({name: version for name, version in pinned.items() if is_pin(name, version)})


def is_pin(name: str, version: str) -> bool:
    """Whether a name and a version from a host make a requirement, and no option of pip."""
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))
