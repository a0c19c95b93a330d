"""The command data dataflow: what an upload by Dataflow takes, and how to run it."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tpuctl.accelerators import region as region_of
from tpuctl.cli import output
from tpuctl.cli.datasets.options import AT_LEAST_ONE, SOURCE_OPTIONS, source_options
from tpuctl.cli.datasets.plan import listed_plan
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps

if TYPE_CHECKING:
    from tpuctl.flows.datasets.beam.dataflow import Estimate
    from tpuctl.flows.datasets.request import UploadRequest

_ARGUMENTS = ("name", "source")


@click.command()
@source_options
@click.option("--region", help="Region of the workers; by default that of the zone in use.")
@click.option("--workers", type=AT_LEAST_ONE, help="Number of workers; by default for half an hour of work.")
@click.option("--machine-type", help="Machine type of a worker, n1-standard-2 by default.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    help="US dollars for an hour of a vCPU, by Google's price list.",
)
@click.option("--rate", type=AT_LEAST_ONE, help="MB of shards that a vCPU makes in a second; 20 by default.")
@with_session
def dataflow(
    session: Session, request: UploadRequest, region: str | None, workers: int | None,
    machine_type: str | None, price: float | None, rate: int | None,
) -> None:  # fmt: skip
    """Print the command that uploads a dataset by Dataflow, and estimate its hours and cost. Starts nothing.

    SOURCE is in a bucket: gs://BUCKET/FOLDER. With Apache Beam installed, the options of the command are
    checked as Google's client checks them.

    \b
    Example:
      tpuctl data dataflow cats_dogs gs://my-pictures/cats_dogs --region europe-west4 --price 0.08
    """
    from tpuctl.flows.datasets.beam import dataflow as flow  # noqa: PLC0415  NumPy: not for other commands

    steps.check_source(session.context, request)
    settings = flow.Settings(
        session.config.require("project"),
        region or region_of(session.config.require("zone")),
        session.cloud.data_bucket.name,
        machine_type or flow.MACHINE_TYPE,
        workers,
        price,
        rate * 1_000_000 if rate else flow.RATE,
    )
    flow.require_bucket(request, settings)
    with listed_plan(session, request) as plan:
        estimate = flow.estimate(plan, settings)
    words = flow.command(request, _typed_options(), settings, estimate.workers)
    checked = steps.beam_options_are_checked(words[words.index("--") + 1 :])
    if session.as_json:
        output.json({"command": words, "options_checked": checked, **asdict(estimate)})
        return
    _show(estimate, settings.machine_type)
    if not checked:
        output.note("Apache Beam is not installed here: the options of Beam were not checked.")
    output.note(f"Workers install {flow.WHEEL}, which this makes here: pip wheel --no-deps CLONE-OF-TPUCTL")
    output.hint(shlex.join(words))


def _show(estimate: Estimate, machine_type: str) -> None:
    cost = "unknown: give --price" if estimate.cost is None else f"{estimate.cost:.2f} USD, by --price"
    output.facts(
        {
            "workers": f"{estimate.workers} × {machine_type}",
            "time": f"about {estimate.seconds // 60 + 1} minutes",
            "vCPU hours": f"about {estimate.vcpu_hours:.1f}",
            "cost": cost,
            "reads": f"about {output.format_bytes(estimate.bytes_read)}",
            "writes": f"about {output.format_bytes(estimate.bytes_written)}",
        }
    )
    for assumption in estimate.assumptions:
        output.note(f"assumption: {assumption}")


def _typed_options() -> list[str]:
    """Return the options of the source as they were typed, for the command."""
    context = click.get_current_context()
    words: list[str] = []
    shared = {param.name: param for param in _parameters()}
    for name, value in context.params.items():
        param = shared.get(name)
        if (
            param is None
            or name in _ARGUMENTS
            or context.get_parameter_source(name) != ParameterSource.COMMANDLINE
        ):
            continue
        flag = param.opts[-1]
        if isinstance(param, click.Option) and param.is_flag:
            words.append(flag)
            continue
        for item in value if isinstance(value, tuple) else (value,):
            words += [flag, str(item)]
    return words


def _parameters() -> list[click.Parameter]:
    def options() -> None: ...

    for option in SOURCE_OPTIONS:
        option(options)
    parameters: list[click.Parameter] = options.__click_params__  # type: ignore[attr-defined]
    return parameters
