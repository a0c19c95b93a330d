"""The data commands: ls, describe, head, verify, rm; the others have files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.bucket_layout import dataset, gs
from tpuctl.cli import output
from tpuctl.cli.datasets.fetch import fetch
from tpuctl.cli.datasets.text import cell, dataset_json, example_fields, show_manifest, tokens_text
from tpuctl.cli.datasets.upload import plan_, upload
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.features import Image
from tpuctl.errors import UsageError
from tpuctl.flows.datasets import lookup as datasets

if TYPE_CHECKING:
    from tpuctl.flows.datasets.check import Example
    from tpuctl.flows.datasets.removal import Removal


@click.group()
def data() -> None:
    """Datasets: TFRecord shards in the bucket."""


data.add_command(fetch)
data.add_command(plan_)
data.add_command(upload)


@data.command("ls")
@with_session
def list_(session: Session) -> None:
    """List the datasets in the bucket.

    \b
    Example:
      tpuctl data ls
    """
    found = list(datasets.every(session.cloud.data_bucket))
    if session.as_json:
        output.json({"datasets": [dataset_json(one, session.cloud.data_bucket.name) for one in found]})
        return
    rows = [
        (
            one.name,
            one.version,
            ", ".join(one.splits),
            one.records,
            len(one.shards),
            output.format_bytes(one.bytes),
        )
        for one in found
    ]
    output.table(("NAME", "VERSION", "SPLITS", "RECORDS", "SHARDS", "SIZE"), rows)


@data.command()
@click.argument("name")
@with_session
def describe(session: Session, name: str) -> None:
    """Show what a dataset (NAME, or NAME/VERSION) consists of, and what it was made from.

    \b
    Example:
      tpuctl data describe digits
    """
    bucket = session.cloud.data_bucket
    manifest = datasets.newest(bucket, name)
    if session.as_json:
        content = {
            "uri": gs(bucket.name, dataset(manifest.name, manifest.version)),
            "digest": manifest.digest,
        }
        output.json({**content, "manifest": manifest})
        return
    show_manifest(manifest, bucket.name)
    output.hint(f"tpuctl data head {name}")


@data.command()
@click.argument("name")
@click.option("--split", default="", help="Split to read; by default the first.")
@click.option("-n", "--count", type=click.IntRange(1, 400), default=5, show_default=True, help="Examples.")
@click.option("--image", type=click.Path(path_type=Path), help="Write the images to this PNG, side by side.")
@with_session
def head(session: Session, name: str, split: str, count: int, image: Path | None) -> None:
    """Show the first examples of a dataset.

    \b
    Example:
      tpuctl data head digits -n 16 --image digits.png
    """
    from tpuctl.flows.datasets import check as dataset_check  # noqa: PLC0415  its imports are for this command alone

    manifest = datasets.newest(session.cloud.data_bucket, name)
    found = dataset_check.head(session.cloud.data_bucket, manifest, split=split, count=count)
    vocabulary = dataset_check.vocabulary(session.cloud.data_bucket, manifest)
    if session.as_json:
        texts = {"texts": [tokens_text(one, vocabulary) for one in found]} if vocabulary else {}
        output.json({"examples": [example_fields(one, manifest) for one in found], **texts})
    else:
        rows = [[cell(one, field, manifest, vocabulary) for field in manifest.features] for one in found]
        output.table([field.upper() for field in manifest.features], rows)
    if image:
        _write_sheet(image, found, manifest)
        output.note(f"{len(found)} images in {image}")


@data.command()
@click.argument("name")
@click.option("--deep", is_flag=True, help="Also read every record: takes as long as a download.")
@with_session
def verify(session: Session, name: str, deep: bool) -> None:
    """Check that every object of a dataset is there and is what its manifest says.

    \b
    Example:
      tpuctl data verify digits --deep
    """
    from tpuctl.flows.datasets import check as dataset_check  # noqa: PLC0415  its imports are for this command alone

    bucket = session.cloud.data_bucket
    manifest = datasets.newest(bucket, name)
    with show_count("files checked") as progress:
        dataset_check.verify(bucket, manifest, deep=deep, progress=progress)
    if session.as_json:
        output.json({**dataset_json(manifest, bucket.name), "deep": deep, "ok": True})
        return
    what = (
        "every record was read" if deep else "sizes and checksums as the bucket has them; records with --deep"
    )
    shards = f"{len(manifest.shards)} shard{'s' if len(manifest.shards) > 1 else ''}"
    print(f"{manifest.name} {manifest.version} is whole: {manifest.records} records in {shards} ({what}).")


@data.command()
@click.argument("name")
@yes_option
@dry_run_option
@with_session
def rm(session: Session, name: str, yes: bool, dry_run: bool) -> None:
    """Remove a version of a dataset (NAME/VERSION), or what an upload that was given up has left.

    Without a version, that of the only one there is. Runs that used it keep their records.

    \b
    Example:
      tpuctl data rm digits/1.0.0
    """
    from tpuctl.flows.datasets import removal as flow  # noqa: PLC0415

    bucket = session.cloud.data_bucket
    planned = flow.removal(bucket, name)
    if dry_run:
        output.requests(planned.requests(bucket.name), as_json=session.as_json)
        return
    where = gs(bucket.name, dataset(planned.name, planned.version))
    if not yes:
        _show_removal(planned, where)
    confirm(f"Remove {planned.name} {planned.version}?", yes=yes)
    flow.remove(bucket, planned)
    if session.as_json:
        output.json(
            {"removed": f"{planned.name}/{planned.version}", "objects": len(planned.objects), "uri": where}
        )
        return
    print(f"Removed {planned.name} {planned.version}: {len(planned.objects)} objects.")


def _show_removal(planned: Removal, where: str) -> None:
    manifest = planned.manifest
    holds = f"{manifest.records} records" if manifest else "no dataset: what an unfinished upload left"
    content = {
        "remove": f"{planned.name} {planned.version}",
        "holds": holds,
        "objects": f"{len(planned.objects)} ({output.format_bytes(planned.bytes)})",
        "where": where,
    }
    output.facts(content, err=True)


def _write_sheet(path: Path, examples: list[Example], manifest: Manifest) -> None:
    from tpuctl.data.images.contact_sheet import contact_sheet  # noqa: PLC0415  Pillow

    image = next((name for name, one in manifest.features.items() if isinstance(one, Image)), None)
    if image is None:
        raise UsageError(f"The dataset '{manifest.name}' holds no images.", hint="Leave --image out.")
    captions = [name for name in manifest.features if name != image]
    sheet = contact_sheet(
        [
            (bytes(one.values[image][0]), ", ".join(cell(one, name, manifest) for name in captions))  # type: ignore[arg-type]
            for one in examples
        ]
    )
    try:
        path.write_bytes(sheet)
    except OSError as error:
        raise UsageError(
            f"Cannot write '{path}': {error.strerror}.", hint="Give a file in a folder that is there."
        ) from error
