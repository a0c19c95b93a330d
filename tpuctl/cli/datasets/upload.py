"""The command data upload.

- The command data dataflow: what an upload by Dataflow takes, and how to run it.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tpuctl.accelerators import region as region_of
from tpuctl.cli import output
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import AT_LEAST_ONE, SOURCE_OPTIONS, source_options
from tpuctl.cli.datasets.rendering import listed_plan, show_notes
from tpuctl.cli.progress import resumable, show_conversion
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.datasets import steps
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.flows.datasets.beam.dataflow import Estimate
    from tpuctl.flows.datasets.request import UploadRequest
    from tpuctl.flows.datasets.upload import Uploaded


@click.command()
@source_options
@click.option("--keep", type=OUTPUT_PATH, help="Write the shards to this folder first, and keep them.")
@click.option(
    "--runner",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="Convert on this machine, or with Apache Beam on several; its options come after --.",
)
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM OPTIONS]")
@dry_run_option
@with_session
def upload(
    session: Session,
    request: UploadRequest,
    keep: Path | None,
    dry_run: bool,
    runner: str,
    beam_options: tuple[str, ...],
) -> None:
    """Convert a dataset to shards in the bucket; run again, it converts only missing shards.

    SOURCE is a folder of pictures (any format), sounds or texts, one folder per class, optionally below
    train/ and test/; pictures with a COCO JSON, masks or a metadata file; CSV, TSV, JSON Lines or
    Parquet; .npy, .npz or IDX files; shards of WebDataset; TFRecords; a dataset of TFDS or of Hugging
    Face's save_to_disk. It may be packed, as tar or zip, and be a pattern in quotes: 'train-*.tar'. The
    dataset becomes visible only when the whole upload succeeded.

    --tokens replaces text by a vector of token ids. The vocabulary is built from the training split, unless
    --vocabulary names a file, and is stored beside the shards as vocabulary.txt.

    Shards are TFRecord files, or with --file-format arrayrecord those that Grain reads at any place.

    SOURCE may be in a bucket: gs://BUCKET/FOLDER or gs://BUCKET/OBJECT, in every format.

    --runner beam produces byte-identical shards. Every worker reads SOURCE itself: from a bucket, or from the
    same path, on a network file system or in the workers' image.

    \b
    Example:
      tpuctl data upload cats_dogs ./images --split train=0.8,test=0.2
      tpuctl data upload reuters ./reuters --tokens words --vocabulary 30000 --length 300
      tpuctl data upload cats_dogs ./images --runner beam -- --direct_num_workers=4
    """
    _check_runner(session, request, runner, beam_options, keep)
    steps.check_source(session, request)
    with listed_plan(session, request) as plan:
        if dry_run:
            _show_requests(session, plan)
            return
        _show_plan(plan)
        with resumable(
            "The upload was interrupted: nothing was published.", "complete shards in the bucket are kept"
        ):
            uploaded = _upload(session, plan, request, beam_options if runner == "beam" else None, keep)
    session.listed.add("datasets", request.ref.name)
    _show_uploaded(session, uploaded)


def _check_runner(
    session: Session, request: UploadRequest, runner: str, beam_options: tuple[str, ...], keep: Path | None
) -> None:
    if beam_options and not (runner == "beam" and beam_options[0].startswith("-")):
        raise UsageError(
            f"Got an unexpected argument: {beam_options[0]}.",
            hint="Give NAME and SOURCE only, and a pattern in quotes: 'train-*.tar'; with --runner beam, the "
            "options of Beam follow --.",
        )
    if keep and runner == "beam":
        raise UsageError(
            "--keep writes shards to this machine, and with --runner beam others convert them.",
            hint="Remove one of them.",
        )
    if runner == "beam":
        from tpuctl.flows.datasets.beam import upload as beam  # NumPy: not for the other commands

        beam.check(beam_options, session.config.target)


def _upload(
    session: Session,
    plan: DatasetPlan,
    request: UploadRequest,
    beam_options: tuple[str, ...] | None,
    keep: Path | None,
) -> Uploaded:
    with show_conversion(plan.records) as report:
        return steps.upload(session, plan, request, report, keep, beam_options)


def _show_requests(session: Session, plan: DatasetPlan) -> None:
    from tpuctl.flows.datasets.upload import requests  # NumPy: not for the other commands

    output.requests(requests(session.cloud.data_bucket, plan), as_json=session.as_json)
    output.note(
        "Reads are not listed. A PUT is repeated for every 8.4 MB of its shard. GENERATION, UPLOAD_ID and "
        "MANIFEST_SHA256 are known only during the upload."
    )


def _show_plan(plan: DatasetPlan) -> None:
    for split in plan.splits:
        count, why = split.sharding.count, split.sharding.why
        shards = f"{count} shard{'s' if count > 1 else ''}"
        output.note(f"{split.name}: {rendering.count_of_records(split.records)} in {shards} ({why})")
    show_notes(plan)


def _show_uploaded(session: Session, uploaded: Uploaded) -> None:
    manifest, bucket = uploaded.manifest, session.cloud.data_bucket.name
    if session.as_json:
        state = {"already_there": uploaded.already_there, "shards_kept": uploaded.kept}
        output.json({**rendering.fields(manifest, bucket), **state})
        return
    rendering.show_summary(manifest, bucket, already_there=uploaded.already_there, kept=uploaded.kept)
    output.hint(f"tpuctl submit SCRIPT --dataset {manifest.name}")


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
    from tpuctl.flows.datasets.beam import dataflow as flow  # NumPy: not for other commands
    from tpuctl.flows.datasets.beam import upload as beam

    steps.check_source(session, request)
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
    checked = beam.are_checked(words[words.index("--") + 1 :])
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
