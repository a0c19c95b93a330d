"""The command describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import overview_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.client.nodes import overview as calls
from tpuctl.client.nodes.overview import Description
from tpuctl.client.runs import steps
from tpuctl.display import Fact
from tpuctl.errors import BucketMissingError, ConfigError, NotFoundError, TpuctlError
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.description import find_described
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import NAME as RUN_NAME


@dataclass(frozen=True)
class _Part:
    """What one of the things of a name is."""

    facts: Sequence[Fact]
    command: str
    """The next command."""


@click.command()
@click.argument("name")
@with_session
def describe(session: Session, name: str) -> None:
    """Show everything that is known of a TPU or a run, and where each fact is from.

    Of a TPU from the Cloud TPU API, the bucket, price lists and the keeper on worker 0; of a run what was
    asked, and what its workers and its machine say. If both have the name, both are shown.

    \b
    Example:
      tpuctl describe ada-v3-8
      tpuctl describe digits-20261122-141617
    """
    described, missing = _tpu(session, name)
    run = _run(session, name, is_needed=described is None, missing=missing)
    tpu = _Part(described.facts, described.command) if described else None
    overview = described.overview if described else None
    if run and missing and not isinstance(missing, NotFoundError):
        output.note(f"Warning: whether there is a TPU '{name}' is unknown: {missing.message}")
    if session.as_json:
        fields = overview_fields(session, overview) | _fields(tpu) if overview and tpu else {}
        output.json({**fields, **({"run": {"name": name, **_fields(run)}} if run else {})})
        return
    for part in filter(None, (tpu, run)):
        output.table(("FACT", "VALUE", "FROM"), [(fact.name, fact.value, fact.source) for fact in part.facts])
    for silent in overview.inventory.unreachable if overview else ():
        output.note(f"Warning: no answer from {silent}: more of that name may be there, and bill.")
    for part in filter(None, (tpu, run)):
        output.hint(part.command)


def _fields(part: _Part | None) -> dict[str, object]:
    if part is None:
        return {}
    facts = [{"name": fact.name, "value": fact.value, "from": fact.source} for fact in part.facts]
    return {"facts": facts, "next": part.command}


def _tpu(session: Session, name: str) -> tuple[Description | None, TpuctlError | None]:
    """Return what is known of a TPU of this name, or why there is nothing: a run may have the name."""
    try:
        return calls.describe(session, name, session.from_flag("zone")), None
    except TpuctlError as error:
        return None, error


def _run(session: Session, name: str, *, is_needed: bool, missing: TpuctlError | None) -> _Part | None:
    """Return what is known of a run of this name.

    Raises the error of the TPU's look-up, which is `missing`, if there is neither.
    """
    try:
        if not RUN_NAME.fullmatch(name):
            raise NotFoundError(f"There is no run '{name}'.")
        bucket = session.cloud.bucket
        stored = find_described(bucket, name)
        if stored is None:
            raise StoredRun(bucket, name).not_found()
        stored.warn = session.warn
        description = steps.describe(session, stored)
        facts = list(description.facts())
    except TpuctlError as error:
        if not is_needed:
            if not isinstance(error, (NotFoundError, ConfigError)):
                output.note(f"Warning: whether there is a run '{name}' is unknown: {error.message}")
            return None
        if not isinstance(missing, NotFoundError | None) and not isinstance(error, RecordMissingError):
            raise missing from error
        if missing is None or not isinstance(error, NotFoundError):
            raise  # nobody knows whether there is a run
        is_known = not isinstance(error, BucketMissingError)
        run = (
            "no run of that name." if is_known else f"whether there is such a run is unknown: {error.message}"
        )
        neither = f"There is no TPU '{name}', and {run}"
        raise NotFoundError(neither, hint=missing.hint) from error
    verdict = description.verdict
    return _Part(facts, outcome.next_command(verdict) if verdict else f"tpuctl logs {name} -f")
