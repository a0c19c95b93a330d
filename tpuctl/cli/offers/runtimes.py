"""The command runtimes."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.offers.rows import UNKNOWN, note_silent
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.offers.survey import Survey, default_of, survey_runtimes

COLUMNS = ("RUNTIME", "DEFAULT OF", "SOURCE", "ZONES")


@click.command()
@with_session
def runtimes(session: Session) -> None:
    """List the runtime versions (system images) for 'tpuctl up --runtime', and the zones that have them.

    In every zone, or in that of --zone. DEFAULT OF names the generations that get it for JAX and PyTorch.

    \b
    Example:
      tpuctl runtimes --zone europe-west4-a
    """
    survey = survey_runtimes(session.cloud.provider, session.from_flag("zone"))
    rows = [_fields(survey, name) for name in survey.names]
    if session.as_json:
        output.json({"runtimes": rows, "silent": survey.silent})
    else:
        output.table(COLUMNS, [_cells(row, len(survey.zones)) for row in rows])
    note_silent(survey)


def _fields(survey: Survey, name: str) -> dict[str, object]:
    offers = survey.of(name)
    return {
        "runtime": name,
        "default_of": default_of(name),
        "sources": sorted({source for zone in offers for source in zone.sources(name).split(", ")}),
        "zones": [zone.zone for zone in offers if name in zone.names],
    }


def _cells(row: dict[str, object], zones: int) -> tuple[object, ...]:
    listed, generations, sources = (row[name] for name in ("zones", "default_of", "sources"))
    assert isinstance(listed, list)
    assert isinstance(generations, list)
    assert isinstance(sources, list)
    count = "all" if len(listed) == zones and zones > 1 else ", ".join(listed[:4])
    more = f" and {len(listed) - 4} more" if count != "all" and len(listed) > 4 else ""
    places = f"{count}{more}" or UNKNOWN
    return row["runtime"], ", ".join(generations) or UNKNOWN, ", ".join(sources), places
