"""The commands data stats, diff, split and sample.

- The command data stats.
- What data split and data sample share: the plan, the upload and what is shown of them.
- The command data diff.
- The command data sample.
- The command data split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.options import AT_LEAST_ONE, RefType, ref_argument
from tpuctl.cli.datasets.rendering import count_of_records
from tpuctl.cli.progress import resumable, show_conversion, show_count
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.analysis.contents import Moments
    from tpuctl.data.plan import DatasetPlan
    from tpuctl.flows.datasets.analysis import (
        DatasetDiff,
        DatasetStats,
        Origin,
        PictureStats,
        ReportRecords,
        SplitStats,
    )


MOST_READ = 200_000
"""Records of a split that are read unless --sample says otherwise."""
_MOST_CLASSES = 20


@click.command()
@ref_argument
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=MOST_READ,
    show_default=True,
    metavar="N",
    help="Read a random N records of each split only; 0 reads all.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed of the sample.")
@with_session
def stats(session: Session, ref: DatasetRef, sample: int, seed: int) -> None:
    """Show what a dataset holds: classes, numbers, pictures, duplicates and leaks between splits.

    Of a split with more records than --sample the figures are those of a random sample, and duplicates are
    only those in it. Means and deviations of the channels are of values from 0 to 1, over all pixels.

    \b
    Example:
      tpuctl data stats digits
      tpuctl data stats digits/1.0.0 --sample 1000 --json
    """
    from tpuctl.flows.datasets import analysis as flow  # NumPy: not for the other commands

    manifest = steps.manifest(session, ref)
    with show_count("records read") as report:
        found = flow.stats(session.cloud.data_bucket, manifest, report, sample=sample or None, seed=seed)
    if session.as_json:
        output.json({"stats": _stats_fields(found)})
        return
    _show_stats(found)
    output.hint(f"tpuctl data describe {manifest.ref}")


def _stats_fields(found: DatasetStats) -> dict[str, object]:
    duplicates = found.duplicates
    return {
        "dataset": str(found.ref),
        "sample": found.is_sample,
        "splits": {split.name: _split_fields(split) for split in found.splits},
        "duplicates": {
            "within": duplicates.within,
            "leaks": [{"splits": pair, "contents": count} for pair, count in duplicates.leaks.items()],
            "examples": duplicates.examples,
            "alike": duplicates.alike,
        },
    }


def _split_fields(split: SplitStats) -> dict[str, object]:
    return {
        "records": split.records,
        "read": split.read,
        "bytes": split.bytes,
        "classes": split.classes,
        "numbers": {field: _moments(moments) for field, moments in split.numbers.items()},
        "pictures": {field: _picture_fields(pictures) for field, pictures in split.pictures.items()},
    }


def _picture_fields(pictures: PictureStats) -> dict[str, object]:
    return {
        "height": _moments(pictures.height),
        "width": _moments(pictures.width),
        "brightness": _moments(pictures.brightness),
        "channels": {
            str(count): [_moments(channel) for channel in channels]
            for count, channels in sorted(pictures.channels.items())
        },
        "sizes": [{"height": height, "width": width, "count": n} for height, width, n in pictures.sizes],
        "broken": pictures.broken,
    }


def _moments(moments: Moments) -> dict[str, object]:
    """Return the moments as JSON has them: null where there is no number."""
    if not moments.count:
        return {"count": 0, "missing": moments.missing}
    return {
        "count": moments.count,
        "mean": moments.mean,
        "std": moments.deviation,
        "min": moments.least,
        "max": moments.most,
        "missing": moments.missing,
    }


def _show_stats(found: DatasetStats) -> None:
    rows = [
        (split.name, split.records, split.read, output.format_bytes(split.bytes)) for split in found.splits
    ]
    output.table(("SPLIT", "RECORDS", "READ", "SIZE"), rows)
    if found.is_sample:
        words = "These are figures of a sample: duplicates outside it are not seen"
        output.note(f"{words} (--sample 0 reads all).")
    for split in found.splits:
        for field, counts in split.classes.items():
            _show_classes(split.name, field, counts)
    _show_numbers(found)
    for split in found.splits:
        for field, pictures in split.pictures.items():
            _show_pictures(f"{split.name}: {field}", pictures)
    _show_duplicates(found)


def _show_classes(split: str, field: str, counts: dict[str, int]) -> None:
    total = max(sum(counts.values()), 1)
    printing.write("")
    printing.write(f"{split}: classes of {field}")
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    rows = [(name, count, f"{count / total:.1%}") for name, count in ordered[:_MOST_CLASSES]]
    output.table(("CLASS", "RECORDS", "SHARE"), rows)
    if len(ordered) > _MOST_CLASSES:
        rarest = ordered[-1]
        output.note(f"And {len(ordered) - _MOST_CLASSES} more, the rarest {rarest[0]} with {rarest[1]}.")


def _show_numbers(found: DatasetStats) -> None:
    rows = [
        (split.name, field, moments.count, *_figures(moments), moments.missing)
        for split in found.splits
        for field, moments in split.numbers.items()
    ]
    if rows:
        printing.write("")
        printing.write("numbers, and lengths of texts")
        output.table(("SPLIT", "FIELD", "COUNT", "MEAN", "STD", "MIN", "MAX", "MISSING"), rows)


def _show_pictures(title: str, pictures: PictureStats) -> None:
    printing.write("")
    printing.write(f"{title}")
    facts: dict[str, object] = {}
    if pictures.height.count:
        sizes = ", ".join(f"{height}×{width} ({count})" for height, width, count in pictures.sizes)
        facts["height"] = f"{pictures.height.least:g} to {pictures.height.most:g}"
        facts["width"] = f"{pictures.width.least:g} to {pictures.width.most:g}"
        facts["most frequent"] = sizes
        mean, deviation = _figures(pictures.brightness)[:2]
        facts["brightness"] = f"{mean} (std {deviation})"
    for count, channels in sorted(pictures.channels.items()):
        of = f" of {count} channels" if len(pictures.channels) > 1 else ""
        facts[f"mean{of}"] = _list(channel.mean for channel in channels)
        facts[f"std{of}"] = _list(channel.deviation for channel in channels)
    if pictures.broken:
        facts["not decoded"] = pictures.broken
    output.facts(facts)


def _show_duplicates(found: DatasetStats) -> None:
    duplicates = found.duplicates
    facts: dict[str, object] = {
        f"duplicates in {split}": count for split, count in duplicates.within.items() if count
    }
    facts |= {f"in {a} and {b}": f"{count} (a leak)" for (a, b), count in duplicates.leaks.items()}
    facts |= {"pictures that look alike": duplicates.alike} if duplicates.alike else {}
    printing.write("")
    output.facts(facts or {"duplicates": "none"})
    for group in duplicates.examples[:3]:
        output.note(f"The same: {', '.join(f'{split} record {index}' for split, index in group)}")


def _figures(moments: Moments) -> list[str]:
    numbers = (moments.mean, moments.deviation, moments.least, moments.most)
    return [f"{number:.6g}" if moments.count else "-" for number in numbers]


def _list(numbers: object) -> str:
    return "[" + ", ".join(f"{number:.4f}" for number in numbers) + "]"  # type: ignore[attr-defined]


def origin_of(session: Session, ref: DatasetRef) -> Origin:
    """Return the dataset that records are drawn from."""
    from tpuctl.flows.datasets.analysis import Origin  # NumPy: not for the other commands

    manifest = steps.manifest(session, ref)
    cloud = session.cloud
    return Origin(cloud.data_bucket, manifest, lambda bucket: cloud.source_objects(bucket))


@contextmanager
def drawn_plan(
    draw: Callable[[ReportRecords], AbstractContextManager[DatasetPlan]],
) -> Iterator[DatasetPlan]:
    """Yield the plan of a drawing, with progress until the records are drawn: the block may show its own."""
    with ExitStack() as sources:
        with show_count("records read") as report:
            plan = sources.enter_context(draw(report))
        yield plan


def upload(session: Session, plan: DatasetPlan, *, dry_run: bool) -> None:
    """Write a plan to the bucket, or show the requests that would."""
    from tpuctl.flows.datasets import upload as flow  # NumPy: not for the other commands

    bucket = session.cloud.data_bucket
    if dry_run:
        output.requests(flow.requests(bucket, plan), as_json=session.as_json)
        return
    for split in plan.splits:
        output.note(f"{split.name}: {rendering.count_of_records(split.records)}")
    problem = "It was interrupted: nothing was published."
    with (
        resumable(problem, "complete shards in the bucket are kept"),
        show_conversion(plan.records) as report,
    ):
        uploaded = flow.upload(bucket, plan, report)
    session.listed.add("datasets", plan.name)
    if session.as_json:
        state = {"already_there": uploaded.already_there, "shards_kept": uploaded.kept}
        output.json({**rendering.fields(uploaded.manifest, bucket.name), **state})
        return
    rendering.show_summary(
        uploaded.manifest, bucket.name, already_there=uploaded.already_there, kept=uploaded.kept
    )


Place = tuple[str, int]


@click.command()
@click.argument("a", type=RefType())
@click.argument("b", type=RefType())
@with_session
def diff(session: Session, a: DatasetRef, b: DatasetRef) -> None:
    """Show in what two datasets, or two versions of one, differ.

    Reads every record of both. Records are the same if their content is: the bytes of their pictures, or of
    all fields but the labels. Where it is, and labels are not, the label has changed.

    \b
    Example:
      tpuctl data diff digits/1.0.0 digits/1.1.0
    """
    from tpuctl.flows.datasets import analysis as flow  # NumPy: not for the other commands

    first, second = (steps.manifest(session, ref) for ref in (a, b))
    with show_count("records read") as report:
        difference = flow.diff(session.cloud.data_bucket, first, second, report)
    if session.as_json:
        output.json({"diff": {**_diff_fields(difference)}})
        return
    _show_diff(difference)


def _diff_fields(difference: DatasetDiff) -> dict[str, object]:
    records = difference.records
    return {
        "a": str(difference.a),
        "b": str(difference.b),
        "differs": not difference.is_empty,
        "facts": [{"name": fact.name, "a": fact.a, "b": fact.b} for fact in difference.facts],
        "records": {
            "same": records.same,
            "only_a": {"count": records.only_a, "examples": records.examples_a},
            "only_b": {"count": records.only_b, "examples": records.examples_b},
            "moved": {"count": records.moved, "examples": records.examples_moved},
            "changed": {"count": records.changed, "examples": records.examples_changed},
        },
    }


def _show_diff(difference: DatasetDiff) -> None:
    a, b, records = difference.a, difference.b, difference.records
    if difference.is_empty:
        same = f"{count_of_records(records.same)} {'is' if records.same == 1 else 'are'} the same"
        printing.write(f"There are no differences between {a} and {b}: {same}.")
        return
    if difference.facts:
        rows = [(fact.name, fact.a or "-", fact.b or "-") for fact in difference.facts]
        output.table(("", str(a), str(b)), rows)
        printing.write("")
    rows_of_records = (
        ("the same", records.same, ""),
        (f"only in {a}", records.only_a, _places(records.examples_a)),
        (f"only in {b}", records.only_b, _places(records.examples_b)),
        ("in another split", records.moved, _pairs(records.examples_moved)),
        ("with another label", records.changed, _pairs(records.examples_changed)),
    )
    output.table(("RECORDS", "COUNT", "SUCH AS"), rows_of_records)
    output.hint(f"tpuctl data stats {b}")


def _places(places: Sequence[Place]) -> str:
    return ", ".join(f"{split} {index}" for split, index in places[:3])


def _pairs(pairs: Sequence[tuple[Place, Place]]) -> str:
    return ", ".join(f"{_places([first])} -> {_places([second])}" for first, second in pairs[:2])


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
    from tpuctl.flows.datasets.analysis import sample_plan  # NumPy

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
    from tpuctl.flows.datasets.analysis import planned_files, write_files

    paths = [str(path) for path in planned_files(plan, folder)]
    files = 0 if dry_run else write_files(plan, folder, output.note)
    noun, verb = ("record", "is") if plan.records == 1 else ("records", "are")
    if session.as_json:
        output.json({"folder": str(folder), "records": plan.records, "files": files, "paths": paths})
    elif dry_run:
        printing.write(f"{plan.records} {noun} would be written to {', '.join(paths)}.")
    else:
        printing.write(f"{plan.records} {noun} {verb} in {', '.join(paths)}.")


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
    from tpuctl.flows.datasets.analysis import split_plan  # NumPy

    origin = origin_of(session, ref)
    new = DatasetRef(origin.manifest.name, version) if version else origin.next_version()
    drawn = partial(split_plan, stratify=stratify, group_duplicates=group_duplicates, seed=seed)
    with drawn_plan(lambda report: drawn(origin, new, splits, report)) as plan:
        upload(session, plan, dry_run=dry_run)
    if not dry_run:
        output.hint(f"tpuctl data diff {origin.manifest.ref} {new}")
