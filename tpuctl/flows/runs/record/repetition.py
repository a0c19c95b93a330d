"""Plans a run that repeats another one: the same code, arguments, packages, data and variables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from tpuctl import clock
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lookup import find_ready
from tpuctl.flows.runs.record import stored_code
from tpuctl.flows.runs.record.comparison import changed
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values, packages, resumption
from tpuctl.flows.runs.submission.environment import check_values
from tpuctl.flows.runs.submission.launch_values import LaunchValues
from tpuctl.flows.runs.submission.plan import (
    SubmitPlan,
    attempt_on,
    default_name,
    of_header,
    own_variables,
    require_dataset,
)
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.images import TENSORFLOW
from tpuctl.job_header import Header
from tpuctl.masking import MASK, masked, masked_arguments
from tpuctl.nodes import Node
from tpuctl.provenance import seeds_of
from tpuctl.recovery import Machine
from tpuctl.runs import NOT_STORED, Run, Verdict, check_name, submitter

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket


@dataclass(frozen=True)
class RepeatRequest:
    """What differs from the run that is repeated, and what its record does not have."""

    name: str | None = None
    tpu: str | None = None
    """Node to run on; None for the owner's READY one of the same type."""
    changes: tuple[str, ...] = ()
    """Arguments that replace others or are added."""
    is_all: bool = False
    """Whether these are all arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    """Variables among them whose values no disk gets."""


def plan_repetition(
    run: StoredRun, data_bucket: Bucket, provider: Provider, owner: str, request: RepeatRequest, at: datetime
) -> SubmitPlan:
    """Return the plan of a run like another one; sends reads only.

    Raises NotFoundError for a run, its code or its dataset that is gone, StateError for a dataset with other
    data and where no node is READY, UsageError for values that nobody here knows and unclear changes.
    """
    record = run.record
    values = launch_values.kept(run.bucket.name, record)
    require_dataset(data_bucket, record)
    code = stored_code.fetch(run.bucket, record)
    header = _with_listed(stored_code.header_of(code), record)
    environment = _environment(record, header, values, request.environment)
    check_values(environment)
    arguments, setup = _arguments(record, values, request), _setup(record, header, values)
    shown, hidden = masked_arguments(arguments), (*request.secrets, *(record.not_kept or ()))
    node = find_ready(provider, request.tpu, None if request.tpu else record.accelerator, owner)
    told = packages.check(node, _of_record(header, record), stored_code.locked(code, record))
    verdict = run.verdict()
    pinned = stored_code.pins(run, header, verdict)
    new = msgspec.structs.replace(
        _renewed(record, request, node, owner, at),
        arguments=shown.arguments,
        environment=_stored(record, environment),
        data_bucket=data_bucket.name,
        not_kept=resumption.not_kept(environment, hidden),
        seeds=seeds_of(shown.arguments, environment, hidden),
        of_header=of_header(environment, header.tpuctl),
        pins=pinned.versions,
        unpacked_size=code.unpacked_size,
    )
    return SubmitPlan(
        run=new,
        attempt=attempt_on(node, record.framework, at),
        node=node,
        code=code,
        launch=Launch(
            arguments=arguments,
            dependencies=header.dependencies,
            environment={
                **own_variables(data_bucket.name, record.framework, node, record.dataset),
                **environment,
            },
            setup=setup,
        ),
        secrets=(*shown.values, *_secrets_in(setup), *_unstored(new, environment)),
        notes=(*_notes(run, new, node, verdict), *pinned.notes, *told, *resumption.note(new)),
        is_named=bool(request.name),
    )


def _of_record(header: Header, record: Run) -> Header:
    """Return a header with the framework that the run had, unless nothing had said it."""
    table = header.tpuctl
    is_said = table.framework or record.framework != TENSORFLOW
    return msgspec.structs.replace(
        header, tpuctl=msgspec.structs.replace(table, framework=record.framework if is_said else "")
    )


def _with_listed(header: Header, record: Run) -> Header:
    """Return a header with the dependencies that files of the project listed; raises UsageError."""
    if not record.listed_in:
        return header
    if any(MASK in text for text in record.dependencies):
        raise UsageError(
            f"Run '{record.run}' had a dependency with a password, which is not stored.",
            hint="Submit the script again.",
        )
    return msgspec.structs.replace(header, dependencies=record.dependencies)


def _renewed(record: Run, request: RepeatRequest, node: Node, owner: str, at: datetime) -> Run:
    """Return a record as of a submission of now, from here, to this node."""
    return msgspec.structs.replace(
        record,
        run=check_name(request.name) if request.name else default_name(record, at),
        created=clock.iso(at),
        submitter=submitter(),
        token="",
        accelerator=node.accelerator,
        machine=_machine(record, node, owner),
        origin=record.run,
    )


def _environment(
    record: Run, header: Header, values: LaunchValues | None, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables: as `given`, as recorded, as in the header, as kept on this machine, or as a seed.

    Raises UsageError that names those that nobody here knows.
    """
    environment, missing = dict(given), []
    for name, value in record.environment.items():
        if name in given:
            continue
        if value != NOT_STORED:
            environment[name] = value
        elif name in record.of_header and name in header.tpuctl.env:
            environment[name] = header.tpuctl.env[name]
        elif values and name in values.environment:
            environment[name] = values.environment[name]
        elif name in record.seeds:
            environment[name] = record.seeds[name]
        else:
            missing.append(name)
    if missing:
        options = " ".join(f"--secret {shlex.quote(name)}" for name in missing)
        raise UsageError(
            f"Run '{record.run}' had values of {', '.join(missing)}, which are neither in the bucket nor on"
            " this machine.",
            hint=f"Export them, then: tpuctl resubmit {record.run} {options}",
            missing=missing,
        )
    return environment


def _arguments(record: Run, values: LaunchValues | None, request: RepeatRequest) -> tuple[str, ...]:
    if request.is_all:
        return request.changes
    arguments = changed(values.arguments if values else record.arguments, request.changes)
    if any(MASK in text for text in arguments) and not values:
        raise UsageError(
            f"The arguments of run '{record.run}' held a secret, which is not stored.",
            hint=f"Give it again: tpuctl resubmit {record.run} -- --OPTION=VALUE",
        )
    return arguments


def _setup(record: Run, header: Header, values: LaunchValues | None) -> str:
    if values:
        return values.setup
    if MASK not in record.setup:
        return record.setup
    command = header.tpuctl.setup
    if masked(command, _secrets_in(command)) != record.setup:
        raise UsageError(
            f"The set-up command of run '{record.run}' held a secret, which is not stored.",
            hint="Submit the script again: tpuctl submit --setup. Secrets in variables can be given again.",
        )
    return command


def _secrets_in(command: str) -> tuple[str, ...]:
    return masked_arguments(tuple(command.split())).values


def _stored(record: Run, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables as the bucket gets them: with the values of those whose values it has already."""
    stored = {name for name, value in record.environment.items() if value != NOT_STORED}
    return {name: value if name in stored else NOT_STORED for name, value in environment.items()}


def _unstored(record: Run, environment: Mapping[str, str]) -> list[str]:
    return [value for name, value in environment.items() if record.environment[name] == NOT_STORED]


def _machine(record: Run, node: Node, owner: str) -> Machine:
    """Return the machine to make when the node is lost: one like it, in the zones of the other run, too."""
    before = record.machine
    ceiling = before.max_price if before else ""
    machine = machine_like(node, RestartRequest(max_price=ceiling), record.framework, owner)
    if before is None or machine.data_disks or before.accelerator != machine.accelerator:
        return machine
    zones = tuple(dict.fromkeys((*machine.zones, *before.zones)))
    return msgspec.structs.replace(machine, zones=zones)


def _notes(run: StoredRun, new: Run, node: Node, verdict: Verdict | None) -> list[str]:
    """Return sentences about what is not as it was."""
    notes = []
    numbers = run.attempt_numbers(verdict)
    before = run.last_readable_attempt(verdict).record.tpu if numbers else None
    if node.accelerator != run.record.accelerator:
        notes.append(
            f"Warning: run '{run.name}' was on {run.record.accelerator}, and this is {node.accelerator}."
        )
    if before and before.runtime != node.runtime:
        notes.append(
            f"Warning: run '{run.name}' had the runtime {before.runtime}, and {node.name} has {node.runtime}:"
            " what the image brings may differ."
        )
    if not new.seeds:
        notes.append("The record has no seed: random numbers differ unless the script has a fixed one.")
    return notes
