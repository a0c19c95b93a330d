"""data upload, data ls."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import show
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.data.manifest import Manifest
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.flows import datasets as flow
from tpuctl.uris import dataset, gs

AT_LEAST_ONE = click.IntRange(min=1)


@click.group()
def data() -> None:
    """Datasets: TFRecord shards in the bucket."""


@data.command()
@click.argument("name")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--version", default="1.0.0", show_default=True, help="Version of the dataset.")
@click.option("--split", help="Shares of the splits, for a source without split folders: train=0.8,test=0.2")
@click.option(
    "--hosts", type=AT_LEAST_ONE, default=1, show_default=True,
    help="Hosts that will read it: shards are a multiple.",
)  # fmt: skip
@click.option("--shards", type=AT_LEAST_ONE, help="Shards of each split; by default about 100 MB each.")
@click.option("--seed", default=0, show_default=True, help="Seed of the shuffle.")
@dry_run_option
@with_session
def upload(
    session: Session, name: str, source: Path, version: str, split: str | None, hosts: int,
    shards: int | None, seed: int, dry_run: bool,
) -> None:  # fmt: skip
    """Convert a folder of images (PNG or JPEG, one folder a class) to TFRecord shards in the bucket.

    \b
    Example:
      tpuctl data upload cats_dogs ./images --split train=0.8,test=0.2
    """
    with show.counting("images read") as progress:
        planned = plan(
            source, name=name, version=version, splits=split, hosts=hosts, shards=shards, seed=seed,
            progress=progress,
        )  # fmt: skip
    bucket = session.cloud.bucket
    if dry_run:
        show.requests(flow.requests(bucket, planned), as_json=session.as_json)
        return
    _show_plan(planned)
    with show.counting("records written") as progress:
        done = flow.upload(bucket, planned, progress)
    _show_uploaded(session, done)


@data.command("ls")
@with_session
def list_(session: Session) -> None:
    """List the datasets in the bucket.

    \b
    Example:
      tpuctl data ls
    """
    bucket = session.cloud.bucket
    found = list(flow.every(bucket))
    if session.as_json:
        show.json({"datasets": [_fields(one, bucket.name) for one in found]})
        return
    rows = [
        (
            one.name,
            one.version,
            ", ".join(one.splits),
            one.records,
            len(one.shards),
            show.bytes_text(one.bytes),
        )
        for one in found
    ]
    show.table(("NAME", "VERSION", "SPLITS", "RECORDS", "SHARDS", "SIZE"), rows)


def _show_plan(planned: DatasetPlan) -> None:
    for split in planned.splits:
        count, why = split.sharding.count, split.sharding.why
        show.note(f"{split.name}: {split.records} records in {count} shard{'s' if count > 1 else ''} ({why})")


def _show_uploaded(session: Session, done: flow.Uploaded) -> None:
    manifest = done.manifest
    if session.as_json:
        uri = {"uri": done.uri, "already_there": done.already_there}
        show.json({**_fields(manifest, session.cloud.bucket.name), **uri})
        return
    show.facts(
        {
            "dataset": f"{manifest.name} {manifest.version}"
            + (" (was there already)" if done.already_there else ""),
            "records": manifest.records,
            "classes": len(manifest.classes),
            "shards": f"{len(manifest.shards)} ({show.bytes_text(manifest.bytes)})",
            "where": done.uri,
        }
    )
    show.hint(f"tpuctl submit SCRIPT --dataset {manifest.name}")


def _fields(manifest: Manifest, bucket: str) -> dict[str, object]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "uri": gs(bucket, dataset(manifest.name, manifest.version)),
        "records": manifest.records,
        "bytes": manifest.bytes,
        "shards": len(manifest.shards),
        "splits": {name: split.records for name, split in manifest.splits.items()},
        "classes": list(manifest.classes),
        "digest": manifest.digest,
    }
