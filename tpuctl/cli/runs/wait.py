"""The command wait."""

from __future__ import annotations

from math import inf

import click

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.cli import output, printing
from tpuctl.cli.nodes.table import show_inventory
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, reaching_options, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes import changes
from tpuctl.client.runs import steps
from tpuctl.errors import BucketMissingError, DeadlineError, NotFoundError, TpuctlError, joined_hints
from tpuctl.flows.nodes.inventory import Inventory
from tpuctl.flows.runs import consequences
from tpuctl.flows.runs.control import wait as flow
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import retry
from tpuctl.runs import NAME


@click.command()
@click.argument("name")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION",
    help="Stop waiting after so long, such as 6h (exit code 9); the run, or the request for the TPU, stays.",
)  # fmt: skip
@click.option("--tpu", "is_tpu", is_flag=True, help="NAME is a TPU, also where a run has this name.")
@printing.without_reader()  # its exit code is the run's
@with_session
@reaching_options
def wait(session: Session, name: str, timeout: int | None, is_tpu: bool) -> None:
    """Wait until a TPU is READY, as after 'tpuctl up --detach', or until a run has ended.

    A TPU is ready when its hosts answer over SSH. The exit code of a run is that of 'tpuctl logs -f'.

    \b
    Example:
      tpuctl wait n1 --timeout 6h
      tpuctl wait digits-20260131-120000
    """
    seconds = inf if timeout is None else timeout
    missing = None
    try:
        run = None if is_tpu else _run(session, name, seconds)
    except BucketMissingError as error:
        run, missing = None, error
    if run:
        _wait_for_run(session, run, seconds)
        return
    try:
        _wait_for_node(session, name, seconds)
    except NotFoundError as error:
        if missing:
            error.message += f" Whether there is such a run is unknown: {missing.message}"
        raise


def _run(session: Session, name: str, seconds: float) -> StoredRun | None:
    """Return the run of a name, None without one; a bucket that is away is asked again within the time.

    Raises the error of one that refuses: a TPU may have the name of a run that trains on it.
    """
    if not NAME.fullmatch(name):
        return None
    run = StoredRun(session.cloud.bucket, name, session.warn)
    try:
        retry(lambda: run.record, on=DeadlineError, timeout=seconds)
    except BadObjectError:
        return run
    except BucketMissingError:
        raise
    except NotFoundError:
        return None
    except TpuctlError as error:
        error.hint = joined_hints(error.hint, f"Wait for the TPU of this name: tpuctl wait {name} --tpu")
        raise
    return run


def _wait_for_run(session: Session, run: StoredRun, seconds: float) -> None:
    with show_steps() as report:
        verdict = steps.await_end(session.context, run, seconds, lambda text: report(f"{run.name}: {text}"))
    error = flow.failure_of(verdict)
    if error:
        raise error
    if session.as_json:
        output.json(flow.summary(verdict))
        return
    output.note(consequences.success_of(verdict))
    output.hint(consequences.next_command(verdict))


def _wait_for_node(session: Session, name: str, seconds: float) -> None:
    with show_steps() as report:
        allocation = changes.await_ready(session.context, name, session.from_flag("zone"), seconds, report)
    show_inventory(session, Inventory((allocation,)))
    output.hint("tpuctl submit SCRIPT")
