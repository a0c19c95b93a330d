"""data plan, data upload: the options they share, and what they show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuctl import accelerators
from tpuctl.cli import show
from tpuctl.cli.session import Command, Session, dry_run_option, with_session
from tpuctl.data.options import Options
from tpuctl.errors import InterruptedByUser, UsageError

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.flows.dataset_upload import Uploaded

AT_LEAST_ONE = click.IntRange(min=1)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

SOURCE_OPTIONS = (
    click.argument("name"),
    click.argument("source", type=click.Path(path_type=Path)),
    click.option("--version", default="1.0.0", show_default=True, help="Version of the dataset."),
    click.option("--split", help="Shares of the splits, for a source without its own: train=0.8,test=0.2"),
    click.option(
        "--for", "accelerator", help="TPU that will read it, such as v3-32: as many shards for each host."
    ),
    click.option("--hosts", type=AT_LEAST_ONE, help="The same by the number of hosts."),
    click.option("--shards", type=AT_LEAST_ONE, help="Shards of each split."),
    click.option("--shard-size", default="100MB", show_default=True, help="Size of a shard, 64MiB to 1GiB."),
    click.option("--seed", default=0, show_default=True, help="Seed of the shuffle."),
    click.option("--resize", help="Bring images to HEIGHTxWIDTH: JPEG at quality 95, PNG as they are."),
    click.option("--label", default="", help="Column that holds the class."),
    click.option(
        "--type", "types", multiple=True, help="Type of a column: COLUMN=int|float|bool|text|bytes|label."
    ),
    click.option("--format", "kind", help="Kind of source, where its name does not say: images, csv, ..."),
    click.option("--skip-bad", is_flag=True, help="Leave bad records out, and list them in the manifest."),
)


def source_options(command: Command) -> Command:
    """Give a command the source, and all that decides on what is made of it, as keyword arguments."""
    return reduce(lambda made, option: option(made), reversed(SOURCE_OPTIONS), command)


@click.command("plan")
@source_options
@with_session
def plan_(session: Session, **asked: Any) -> None:
    """Show what an upload would make of a source: records, bytes, shards, and why. Needs no bucket.

    \b
    Example:
      tpuctl data plan cats_dogs ./images --for v3-32
    """
    planned = _planned(asked)
    if session.as_json:
        show.json(_plan_fields(planned))
        return
    rows = [
        (one.name, one.records, _size(planned, one.bytes), one.sharding.count, one.sharding.why)
        for one in planned.splits
    ]
    show.table(("SPLIT", "RECORDS", "SIZE", "SHARDS", "WHY"), rows)
    show.note(f"{planned.records} records of {planned.source.kind}, {_size(planned, planned.bytes)} in all.")
    for bad in planned.source.bad[:5]:
        show.note(f"left out: {bad}")
    show.hint(f"tpuctl data upload {planned.name} {asked['source']}, with the same options")


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

    With --runner beam the shards are the same to the byte. Every worker reads SOURCE from the same path, so
    it lies on a network file system or in the workers' image; a gs:// source is not read yet.

    \b
    Example:
      tpuctl data upload cats_dogs ./images --split train=0.8,test=0.2
      tpuctl data upload cats_dogs ./images --runner beam -- --direct_num_workers=4
    """
    from tpuctl.flows import dataset_beam as beam  # noqa: PLC0415  NumPy: not for the other commands
    from tpuctl.flows import dataset_upload as flow  # noqa: PLC0415

    _check_runner(runner, beam_options, keep)
    if runner == "beam":
        beam.check(str(asked["source"]), beam_options, session.config.target)
    planned = _planned(asked)
    bucket = session.cloud.data_bucket
    if dry_run:
        show.requests(flow.requests(bucket, planned), as_json=session.as_json)
        return
    _show_plan(planned)
    with show.converting(planned.records) as progress, _interruptible():
        if runner == "beam":
            arguments = {**_arguments(asked), "source": asked["source"].absolute()}
            done = beam.upload(session.cloud, planned, arguments, beam_options, progress)
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

    with show.counting("records listed") as progress:
        return plan(**_arguments(asked), progress=progress)


def _arguments(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, as arguments of `plan.plan`."""
    return {
        "source": asked["source"],
        "name": asked["name"],
        "version": asked["version"],
        "kind": asked["kind"],
        "options": Options(_types(asked["types"]), asked["label"], _resize(asked["resize"])),
        "splits": asked["split"],
        "hosts": _hosts(asked["accelerator"], asked["hosts"]),
        "shards": asked["shards"],
        "shard_size": _bytes(asked["shard_size"]),
        "seed": asked["seed"],
        "skip_bad": asked["skip_bad"],
    }


def _hosts(accelerator: str | None, hosts: int | None) -> int:
    if accelerator and hosts:
        raise UsageError("--for and --hosts both say how many hosts there are.", hint="Give one of them.")
    return accelerators.accelerator(accelerator).hosts if accelerator else hosts or 1


def _types(given: Iterable[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for one in given:
        name, equals, kind = one.rpartition("=")
        if not equals or not name or name in types:
            raise UsageError(f"Cannot read --type {one}.", hint="Once for each column: --type age=float")
        types[name] = kind
    return types


def _resize(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})(?:[x×]([1-9]\d{0,4}))?", text.strip())
    if not found:
        raise UsageError(f"Cannot read --resize {text}.", hint="Height and width: --resize 224x224")
    return int(found[1]), int(found[2] or found[1])


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if not found:
        raise UsageError(f"Cannot read --shard-size {text}.", hint="For instance 256MB, or 256MiB.")
    return int(float(found[1]) * _UNITS[found[2] or ""])


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
    return f"{'' if planned.exact else 'about '}{show.bytes_text(size)}"


def _show_plan(planned: DatasetPlan) -> None:
    for split in planned.splits:
        count, why = split.sharding.count, split.sharding.why
        show.note(f"{split.name}: {split.records} records in {count} shard{'s' if count > 1 else ''} ({why})")
    for bad in planned.source.bad[:5]:
        show.note(f"left out: {bad}")


def _show_uploaded(session: Session, done: Uploaded) -> None:
    manifest, kept = done.manifest, done.kept
    if session.as_json:
        more = {"uri": done.uri, "already_there": done.already_there, "shards_kept": kept}
        show.json({**show.dataset(manifest, session.cloud.data_bucket.name), **more})
        return
    shards = f"{len(manifest.shards)} ({show.bytes_text(manifest.bytes)})"
    content = {
        "dataset": f"{manifest.name} {manifest.version}"
        + (" (was there already)" if done.already_there else ""),
        "records": manifest.records,
        "classes": len(manifest.classes),
        "shards": f"{shards}, {kept} kept from an upload before" if kept else shards,
        "skipped": manifest.source.skipped,
        "where": done.uri,
    }
    show.facts({name: value for name, value in content.items() if value != 0})
    for bad in manifest.source.bad[:5]:
        show.note(f"skipped: {bad}")
    if manifest.source.skipped > 5:
        show.note(f"All that was skipped: tpuctl data describe {manifest.name} --json")
    show.hint(f"tpuctl submit SCRIPT --dataset {manifest.name}")


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
