"""The command data split."""

from __future__ import annotations

from functools import partial

import click

from tpuctl.cli import output
from tpuctl.cli.datasets.analysis.derived import drawn_plan, origin_of, upload
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.datasets import DatasetRef


@click.command()
@ref_argument
@click.option("--splits", required=True, help="Share of each split: train=0.8,test=0.2")
@click.option("--as", "version", metavar="VERSION", help="The new version. [default: the next, as 1.1.0]")
@click.option(
    "--stratify",
    metavar="FIELD",
    help="Label whose classes keep their shares; '' for none. [default: the only label]",
)
@click.option("--group-duplicates", is_flag=True, help="Keep records of the same content in one split.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the drawing.")
@dry_run_option
@with_session
def split(
    session: Session,
    ref: DatasetRef,
    splits: str,
    version: str | None,
    stratify: str | None,
    group_duplicates: bool,
    seed: int,
    dry_run: bool,
) -> None:
    """Make a version of a dataset with other splits, from its records in the bucket.

    The original source is not needed. The version becomes visible only when it is complete; run again, an
    interrupted command keeps complete shards.

    \b
    Example:
      tpuctl data split digits --splits train=0.8,test=0.2
    """
    from tpuctl.flows.datasets.analysis.derive import split_plan  # noqa: PLC0415  NumPy

    origin = origin_of(session, ref)
    new = DatasetRef(origin.manifest.name, version) if version else origin.next_version()
    drawn = partial(split_plan, stratify=stratify, group_duplicates=group_duplicates, seed=seed)
    with drawn_plan(lambda report: drawn(origin, new, splits, report)) as plan:
        upload(session, plan, dry_run=dry_run)
    if not dry_run:
        output.hint(f"tpuctl data diff {origin.manifest.ref} {new}")
