"""The command runtimes."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.offers.rows import UNKNOWN, note_silent, offer_cells, offer_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.offers.survey import Survey, default_of, survey_runtimes

RUNTIME_COLUMNS = ("RUNTIME", "DEFAULT OF", "SOURCE", "ZONES")


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
    if session.as_json:
        rows = [_runtime_fields(survey, name) for name in survey.names]
        output.json({"runtimes": rows, "silent": survey.silent})
    else:
        output.table(RUNTIME_COLUMNS, [_runtime_cells(survey, name) for name in survey.names])
    note_silent(survey)


def _runtime_fields(survey: Survey, name: str) -> dict[str, object]:
    return {"runtime": name, "default_of": default_of(name), **offer_fields(survey, name)}


def _runtime_cells(survey: Survey, name: str) -> tuple[object, ...]:
    offer = offer_fields(survey, name)
    sources, zones = offer_cells(offer)
    is_everywhere = len(offer["zones"]) == len(survey.zones) > 1
    return name, ", ".join(default_of(name)) or UNKNOWN, sources, "all" if is_everywhere else zones
