"""The command data upload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import source_options
from tpuctl.cli.datasets.plan import listed_plan, show_notes
from tpuctl.cli.progress import resumable, show_conversion
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.datasets import steps
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
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
    """Convert a dataset to TFRecord shards in the bucket; run again, it converts only missing shards.

    SOURCE is a folder of pictures (any format), sounds or texts, one folder per class, optionally below
    train/ and test/; pictures with a COCO JSON, masks or a metadata file; CSV, TSV, JSON Lines or
    Parquet; .npy, .npz or IDX files; shards of WebDataset; TFRecords; a dataset of TFDS or of Hugging
    Face's save_to_disk. It may be packed, as tar or zip, and be a pattern in quotes: 'train-*.tar'. The
    dataset becomes visible only when the whole upload succeeded.

    --tokens replaces text by a vector of token ids. The vocabulary is built from the training split, unless
    --vocabulary names a file, and is stored beside the shards as vocabulary.txt.

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
    steps.check_source(session.context, request)
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
        from tpuctl.flows.datasets.beam import upload as beam  # noqa: PLC0415  NumPy: not for the other commands

        beam.check(beam_options, session.config.target)


def _upload(
    session: Session,
    plan: DatasetPlan,
    request: UploadRequest,
    beam_options: tuple[str, ...] | None,
    keep: Path | None,
) -> Uploaded:
    with show_conversion(plan.records) as report:
        return steps.upload(session.context, plan, request, report, keep, beam_options)


def _show_requests(session: Session, plan: DatasetPlan) -> None:
    from tpuctl.flows.datasets.upload import requests  # noqa: PLC0415  NumPy: not for the other commands

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
