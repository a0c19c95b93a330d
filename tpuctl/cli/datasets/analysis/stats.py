"""The command data stats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef

if TYPE_CHECKING:
    from tpuctl.data.analysis.moments import Moments
    from tpuctl.flows.datasets.analysis.stats import DatasetStats, PictureStats, SplitStats

MOST_READ = 200_000
"""Records of a split that are read unless --sample says otherwise."""
_MOST_CLASSES = 20


@click.command()
@ref_argument
@click.option(
    "--sample", type=click.IntRange(min=0), default=MOST_READ, show_default=True, metavar="N",
    help="Read a random N records of each split only; 0 reads all.",
)  # fmt: skip
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
    from tpuctl.flows.datasets.analysis import stats as flow  # noqa: PLC0415  NumPy: not for the other commands

    manifest = steps.manifest(session.context, ref)
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
        "count": moments.count, "mean": moments.mean, "std": moments.deviation, "min": moments.least,
        "max": moments.most, "missing": moments.missing,
    }  # fmt: skip


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
