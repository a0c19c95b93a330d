"""The command data diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.options import RefType
from tpuctl.cli.datasets.rendering import count_of_records
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef

if TYPE_CHECKING:
    from tpuctl.flows.datasets.analysis.diff import DatasetDiff

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
    from tpuctl.flows.datasets.analysis import diff as flow  # noqa: PLC0415  NumPy: not for the other commands

    first, second = (steps.manifest(session.context, ref) for ref in (a, b))
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
