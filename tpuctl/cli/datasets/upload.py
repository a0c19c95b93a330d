"""data plan, data upload, and what they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuctl.cli import output
from tpuctl.cli.datasets.options import arguments, source_options
from tpuctl.cli.datasets.text import dataset_json
from tpuctl.cli.datasets.tokens import described
from tpuctl.cli.progress import show_conversion, show_count
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.errors import InterruptedByUser, UsageError

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.flows.datasets.upload import Uploaded


@click.command("plan")
@source_options
@with_session
def plan_(session: Session, **asked: Any) -> None:
    """Show what an upload would make of a source: records, bytes, shards, and why. Needs no bucket.

    \b
    Example:
      tpuctl data plan reviews ./reviews.csv --tokens wordpiece --vocabulary 8000
      tpuctl data plan cats_dogs ./images --for v3-32
    """
    planned = _planned(asked)
    if session.as_json:
        output.json(_plan_fields(planned))
        return
    rows = [
        (one.name, one.records, _size(planned, one.bytes), one.sharding.count, one.sharding.why)
        for one in planned.splits
    ]
    output.table(("SPLIT", "RECORDS", "SIZE", "SHARDS", "WHY"), rows)
    output.note(
        f"{planned.records} records of {planned.source.kind}, {_size(planned, planned.bytes)} in all."
    )
    _show_tokens(planned)
    for bad in planned.source.bad[:5]:
        output.note(f"left out: {bad}")
    output.hint(f"tpuctl data upload {planned.name} {asked['source']}, with the same options")


@click.command()
@source_options
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Write the shards to this folder, too, and first."
)
@click.option(
    "--runner",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="Make the shards on this machine, or with Apache Beam on several; its options come after --.",
)
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM OPTIONS]")
@dry_run_option
@with_session
def upload(
    session: Session,
    keep: Path | None,
    dry_run: bool,
    runner: str,
    beam_options: tuple[str, ...],
    **asked: Any,
) -> None:
    """Convert a dataset to TFRecord shards in the bucket; run again, it makes only what is missing.

    SOURCE is a folder of images (PNG or JPEG) or of texts, one folder a class, perhaps with train/ and test/
    above; CSV, TSV, JSON Lines or Parquet; .npy, .npz or IDX files; TFRecords; or a dataset of TFDS. The
    dataset exists once all of it is there and whole.

    With --tokens, the text becomes a vector of ids; its vocabulary is made from the training split, unless a
    file is given, and lies beside the shards as vocabulary.txt.

    With --runner beam the shards are the same to the byte. Every worker reads SOURCE from the same path, so
    it lies on a network file system or in the workers' image; a gs:// source is not read yet.

    \b
    Example:
      tpuctl data upload cats_dogs ./images --split train=0.8,test=0.2
      tpuctl data upload reuters ./reuters --tokens words --vocabulary 30000 --length 300
      tpuctl data upload cats_dogs ./images --runner beam -- --direct_num_workers=4
    """
    from tpuctl.flows.datasets import upload as flow  # noqa: PLC0415
    from tpuctl.flows.datasets.beam import upload as beam  # noqa: PLC0415  NumPy: not for the other commands

    _check_runner(runner, beam_options, keep)
    if runner == "beam":
        beam.check(str(asked["source"]), beam_options, session.config.target)
    planned = _planned(asked)
    bucket = session.cloud.data_bucket
    if dry_run:
        output.requests(flow.requests(bucket, planned), as_json=session.as_json)
        return
    _show_plan(planned)
    with show_conversion(planned.records) as progress, _interruptible():
        if runner == "beam":
            known = {"source": asked["source"].absolute(), "vocabulary": planned.vocabulary}
            made_with = {**arguments(asked), **known}
            done = beam.upload(session.cloud, planned, made_with, beam_options, progress)
        else:
            done = flow.upload(bucket, planned, progress, skip_bad=asked["skip_bad"], keep=keep)
    _show_uploaded(session, done)


def _check_runner(runner: str, beam_options: tuple[str, ...], keep: Path | None) -> None:
    if beam_options and not (runner == "beam" and beam_options[0].startswith("-")):
        raise UsageError(
            f"Got an unexpected argument: {beam_options[0]}.",
            hint="NAME and SOURCE are all; after --runner beam, the options of Beam follow --.",
        )
    if keep and runner == "beam":
        raise UsageError(
            "--keep writes shards to this machine, and with --runner beam others make them.",
            hint="Leave one of them out.",
        )


def _planned(asked: Mapping[str, Any]) -> DatasetPlan:
    from tpuctl.data.plan import plan  # noqa: PLC0415  NumPy: not for the other commands

    with show_count("records listed") as progress:
        planned = plan(**arguments(asked), progress=progress)
    click.get_current_context().call_on_close(planned.source.close)
    return planned


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedByUser(
            "The upload was interrupted: nothing was published.",
            hint="Run the same command again: shards that are whole in the bucket are kept.",
        ) from None


def _size(planned: DatasetPlan, size: int) -> str:
    return f"{'' if planned.exact else 'about '}{output.format_bytes(size)}"


def _show_plan(planned: DatasetPlan) -> None:
    for split in planned.splits:
        count, why = split.sharding.count, split.sharding.why
        output.note(
            f"{split.name}: {split.records} records in {count} shard{'s' if count > 1 else ''} ({why})"
        )
    _show_tokens(planned)
    for bad in planned.source.bad[:5]:
        output.note(f"left out: {bad}")


def _show_tokens(planned: DatasetPlan) -> None:
    if planned.options.tokens:
        output.note(f"tokens: {described(planned.options.tokens)}")


def _show_uploaded(session: Session, done: Uploaded) -> None:
    manifest, kept = done.manifest, done.kept
    if session.as_json:
        more = {"uri": done.uri, "already_there": done.already_there, "shards_kept": kept}
        output.json({**dataset_json(manifest, session.cloud.data_bucket.name), **more})
        return
    shards = f"{len(manifest.shards)} ({output.format_bytes(manifest.bytes)})"
    content = {
        "dataset": f"{manifest.name} {manifest.version}"
        + (" (was there already)" if done.already_there else ""),
        "records": manifest.records,
        "classes": len(manifest.classes),
        "shards": f"{shards}, {kept} kept from an upload before" if kept else shards,
        "skipped": manifest.source.skipped,
        "where": done.uri,
    }
    output.facts({name: value for name, value in content.items() if value != 0})
    for bad in manifest.source.bad[:5]:
        output.note(f"skipped: {bad}")
    if manifest.source.skipped > 5:
        output.note(f"All that was skipped: tpuctl data describe {manifest.name} --json")
    output.hint(f"tpuctl submit SCRIPT --dataset {manifest.name}")


def _plan_fields(planned: DatasetPlan) -> dict[str, object]:
    return {
        "name": planned.name,
        "version": planned.version,
        "kind": planned.source.kind,
        "records": planned.records,
        "bytes": planned.bytes,
        "exact": planned.exact,
        "classes": list(planned.classes),
        "features": planned.features,
        **({"tokens": planned.options.tokens} if planned.options.tokens else {}),
        "splits": {
            one.name: {
                "records": one.records,
                "bytes": one.bytes,
                "shards": one.sharding.count,
                "why": one.sharding.why,
            }
            for one in planned.splits
        },
        "left_out": [str(bad) for bad in planned.source.bad],
    }
