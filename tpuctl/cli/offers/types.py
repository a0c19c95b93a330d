"""The command types."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.offers.rows import UNKNOWN, note_silent
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.offers.survey import Survey, survey_types

COLUMNS = ("TYPE", "GENERATION", "CHIPS", "CORES", "HOSTS", "TOPOLOGY", "SOURCE", "ZONES")
MOST_ZONES = 4
"""Zones that a line of the table names."""


@click.command()
@with_session
def types(session: Session) -> None:
    """List the accelerator types: chips, hosts, topology, and the zones that offer them.

    In every zone, or in that of --zone.

    \b
    Example:
      tpuctl types --zone europe-west4-a
    """
    survey = survey_types(session.cloud.provider, session.from_flag("zone"))
    rows = [_fields(survey, name) for name in survey.names]
    if session.as_json:
        output.json({"types": rows, "silent": survey.silent})
    else:
        output.table(COLUMNS, [_cells(row) for row in rows])
    note_silent(survey)


def _fields(survey: Survey, name: str) -> dict[str, object]:
    offers = survey.of(name)
    sources = sorted({source for zone in offers for source in zone.sources(name).split(", ")})
    kind = accelerators.catalogue().get(name)
    return {
        "type": name,
        "generation": kind.generation if kind else None,
        "chips": kind.chips if kind else None,
        "cores": kind.cores if kind else None,
        "hosts": kind.hosts if kind else None,
        "topology": kind.topology if kind else None,
        "sources": sources,
        "zones": [zone.zone for zone in offers if name in zone.names],
    }


def _cells(row: dict[str, object]) -> tuple[object, ...]:
    zones, sources = row["zones"], row["sources"]
    assert isinstance(zones, list)
    assert isinstance(sources, list)
    more = f" and {len(zones) - MOST_ZONES} more" if len(zones) > MOST_ZONES else ""
    facts = [row[name] for name in ("type", "generation", "chips", "cores", "hosts", "topology")]
    listed = ", ".join(zones[:MOST_ZONES]) + more
    cells = [UNKNOWN if fact is None else fact for fact in facts]
    return *cells, ", ".join(sources), listed or UNKNOWN
