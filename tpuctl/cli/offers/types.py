"""The command types."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.offers.rows import UNKNOWN, note_silent, offer_cells, offer_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.offers.survey import Survey, survey_types

TYPE_COLUMNS = ("TYPE", "GENERATION", "CHIPS", "CORES", "HOSTS", "TOPOLOGY", "SOURCE", "ZONES")
FACTS = ("generation", "chips", "cores", "hosts", "topology")


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
    if session.as_json:
        rows = [_type_fields(survey, name) for name in survey.names]
        output.json({"types": rows, "silent": survey.silent})
    else:
        output.table(TYPE_COLUMNS, [_type_cells(survey, name) for name in survey.names])
    note_silent(survey)


def _type_fields(survey: Survey, name: str) -> dict[str, object]:
    return {"type": name, **_facts(name), **offer_fields(survey, name)}


def _facts(name: str) -> dict[str, object]:
    """What the catalogue knows of a type; None for each fact of one that it does not know."""
    kind = accelerators.catalogue().get(name)
    return {fact: getattr(kind, fact, None) for fact in FACTS}


def _type_cells(survey: Survey, name: str) -> tuple[object, ...]:
    facts = [UNKNOWN if fact is None else fact for fact in _facts(name).values()]
    return name, *facts, *offer_cells(offer_fields(survey, name))
