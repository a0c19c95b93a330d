"""Reads the project's quotas of TPUs from the Cloud Quotas API."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tpuctl.catalogue.quotas import UNLIMITED, QuotaLimit, QuotaList
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.rest import RestApi
from tpuctl.cloud.tpu.rules import location

SERVICE = Service("cloudquotas.googleapis.com", "roles/cloudquotas.viewer")
URL = "https://cloudquotas.googleapis.com"
EVERYWHERE = "global"
SOURCE = "Cloud Quotas API"
QUOTA_ID = re.compile(
    r"TPUV(?P<number>\d+)(?P<family>[A-Za-z]?)(?P<spot>Preemptible)?(?P<kind>Litepod|Pod)?"
    r"PerProject[Pp]er(Zone|Region)ForTPUAPI"
)
"""Ids of quotas as errors of the Cloud TPU API name them: `TPUV5sLitepodPerProjectPerZoneForTPUAPI`.

Others, such as those of `Serving`, do not hold for nodes of the Cloud TPU API.
"""
GENERATIONS = {
    # number, family, kind: generation, and whether it holds for slices of several hosts (None: for all sizes)
    ("2", "s", None): ("v2", False),
    ("2", "s", "Pod"): ("v2", True),
    ("3", "s", None): ("v3", False),
    ("3", "s", "Pod"): ("v3", True),
    ("4", "s", "Pod"): ("v4", None),
    ("5", "s", "Litepod"): ("v5e", None),
    ("5", "P", None): ("v5p", None),
    ("6", "E", None): ("v6e", None),
}


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the API; other fields are skipped."""


class _Details(_Record, frozen=True):
    value: int | str = 0


class _DimensionsInfo(_Record, frozen=True):
    details: _Details = _Details()
    dimensions: dict[str, str] = {}
    applicable_locations: tuple[str, ...] = ()


class _QuotaInfo(_Record, frozen=True):
    """One quota (https://cloud.google.com/docs/quotas/reference/rest)."""

    quota_id: str = ""
    dimensions_infos: tuple[_DimensionsInfo, ...] = ()


class _QuotaPage(_Record, frozen=True):
    quota_infos: tuple[_QuotaInfo, ...] = ()
    next_page_token: str = ""


def read_quotas(api: RestApi, project: str) -> QuotaList:
    """Return the limits of a project's TPUs; raises ConfigError without cloudquotas.quotas.get."""
    path = f"/v1/{location(project, EVERYWHERE)}/services/tpu.googleapis.com/quotaInfos"
    pages = api.pages(path, _QuotaPage, f"the quotas of project {project}", pageSize="500")
    infos = (info for page in pages for info in page.quota_infos)
    return QuotaList(tuple(limit for info in infos for limit in _limits(info)), SOURCE)


def _limits(info: _QuotaInfo) -> Iterator[QuotaLimit]:
    match = QUOTA_ID.fullmatch(info.quota_id)
    if match is None:
        return
    row = GENERATIONS.get((match["number"], match["family"], match["kind"]))
    if row is None:
        return
    generation, slices = row
    for dimensions in info.dimensions_infos:
        places = tuple(dimensions.dimensions.values()) or dimensions.applicable_locations
        value = str(dimensions.details.value)
        if re.fullmatch(r"-1|\d{1,15}", value):
            limit = UNLIMITED if value == "-1" else int(value)
            yield QuotaLimit(generation, bool(match["spot"]), slices, places, limit)
