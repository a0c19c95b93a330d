"""The command data sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.analysis.derived import drawn_plan, origin_of, upload
from tpuctl.cli.datasets.options import AT_LEAST_ONE, RefType, ref_argument
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.plan import DatasetPlan


@click.command()
@ref_argument
@click.option("-n", "--count", type=AT_LEAST_ONE, default=100, show_default=True, help="Number of records.")
@click.option("--to", "folder", type=OUTPUT_PATH, help="Write files to this folder: pictures by class.")
@click.option("--as", "new", type=RefType(), metavar="NAME/VERSION", help="Make a dataset in the bucket.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the drawing.")
@dry_run_option
@with_session
def sample(
    session: Session,
    ref: DatasetRef,
    count: int,
    folder: Path | None,
    new: DatasetRef | None,
    seed: int,
    dry_run: bool,
) -> None:
    """Take a random sample of a dataset: as files to look at, or as a small dataset.

    Each split and each class keeps its share, as far as whole records can. The same seed gives the same
    sample. Records without pictures become JSON Lines.

    \b
    Example:
      tpuctl data sample digits -n 100 --to ./look
      tpuctl data sample digits -n 1000 --as digits_small/1.0.0
    """
    from tpuctl.flows.datasets.analysis.derive import sample_plan  # noqa: PLC0415  NumPy

    if (folder is None) == (new is None):
        raise UsageError(
            "A sample goes to a folder or becomes a dataset.",
            hint=f"Give one of them: tpuctl data sample {ref} --to ./sample",
        )
    origin = origin_of(session, ref)
    target = DatasetRef(new.name, new.version or "1.0.0") if new else DatasetRef("sample", "1.0.0")
    with drawn_plan(lambda report: sample_plan(origin, target, count, report, seed=seed)) as plan:
        if folder:
            _write(session, plan, folder, dry_run=dry_run)
        else:
            upload(session, plan, dry_run=dry_run)
    if new and not dry_run:
        output.hint(f"tpuctl data stats {target}")


def _write(session: Session, plan: DatasetPlan, folder: Path, *, dry_run: bool) -> None:
    from tpuctl.flows.datasets.analysis.sample_files import planned_files, write_files  # noqa: PLC0415

    paths = [str(path) for path in planned_files(plan, folder)]
    files = 0 if dry_run else write_files(plan, folder, output.note)
    noun, verb = ("record", "is") if plan.records == 1 else ("records", "are")
    if session.as_json:
        output.json({"folder": str(folder), "records": plan.records, "files": files, "paths": paths})
    elif dry_run:
        printing.write(f"{plan.records} {noun} would be written to {', '.join(paths)}.")
    else:
        printing.write(f"{plan.records} {noun} {verb} in {', '.join(paths)}.")
