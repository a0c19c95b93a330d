"""Looks whether a run fits its buckets: where they are, and what their rules delete or forbid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tpuctl.catalogue.regions import unread
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.hosts import bucket_access
from tpuctl.flows.runs.submission.plan import SubmitPlan

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def usable(planned: SubmitPlan, bucket: Bucket) -> SubmitPlan:
    """Return a plan that says what the bucket's rules do to its records; raises ConfigError if it cannot run.

    Settings that cannot be read refuse nothing.
    """
    try:
        rules = bucket.rules()
    except TpuctlError:
        return planned
    found = [f"Warning: {concern.text}." for concern in rules.require_usable(bucket.now().date())]
    if not rules.prevents_public_access:
        found += bucket_access.public(bucket)
    return replace(planned, notes=(*planned.notes, *found))


def near(planned: SubmitPlan, bucket: Bucket, data_bucket: Bucket) -> SubmitPlan:
    """Return a plan without zones of restarts in other regions than its buckets, which it says.

    Raises UsageError for a node in another region, with the price of one pass over its dataset. Where it
    cannot be read where a bucket is, nothing is refused, and that is said.
    """
    for each in {each.name: each for each in (bucket, data_bucket)}.values():
        try:
            location = each.location()
        except TpuctlError:
            planned = replace(planned, notes=(*planned.notes, unread(each.name)))
            continue
        dataset, machine, zone = planned.run.dataset, planned.run.machine, planned.node.zone
        if dataset and each is data_bucket and not location.is_near(zone):
            manifest = find_manifest(each, DatasetRef(dataset.name, dataset.version))
            location.require_near(zone, data=str(dataset), size=manifest.bytes if manifest else 0)
        location.require_near(zone)
        far = [place for place in machine.zones if not location.is_near(place)] if machine else []
        if machine and far:
            machine = msgspec.structs.replace(
                machine, zones=tuple(place for place in machine.zones if place not in far)
            )
            note = f"Restarts leave out {', '.join(far)}: gs://{each.name} is in another region."
            planned = replace(
                planned,
                run=msgspec.structs.replace(planned.run, machine=machine),
                notes=(*planned.notes, f"{note} --cross-region tries them, too."),
            )
    return planned
