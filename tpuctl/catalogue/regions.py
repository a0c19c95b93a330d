"""Compares where a bucket is with where TPUs are: another region is slow, and Google bills the traffic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpuctl.accelerators import region

MULTI_REGIONS = {
    # multi-region of Cloud Storage: how its regions begin, and which of those are not in it
    "us": ("us-", ()),
    "eu": ("europe-", ("europe-west2", "europe-west6")),
    "asia": ("asia-", ()),
}
DUAL_REGIONS = {
    # predefined dual-region: its regions
    "nam4": ("us-central1", "us-east1"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "asia1": ("asia-northeast1", "asia-northeast2"),
}
"""Both: https://cloud.google.com/storage/docs/locations. Other dual-regions name their regions themselves."""
CONTINENTS = {"eu": "europe"}
"""Multi-region -> how its regions begin, where that is another word."""


@dataclass(frozen=True)
class BucketLocation:
    """Where a bucket's objects are."""

    bucket: str
    name: str
    """The location as the service names it, in lower case: `europe-west4`, `us`, `nam4`."""
    regions: tuple[str, ...] = ()
    """The regions of a dual-region that was configured; empty for any other location."""

    def is_near(self, zone: str) -> bool:
        """Whether objects are in the region of a zone, or in a multi-region that has it."""
        place = region(zone)
        return place in self._regions() or self._is_around(place)

    def is_in_region(self, zone: str) -> bool:
        """Whether objects are surely in the region of a zone itself."""
        return region(zone) in self._regions()

    def warning(self, zone: str) -> str:
        """Return the sentence that `up` says before a TPU in another region; empty in the same one."""
        if self.is_in_region(zone):
            return ""
        if self.is_near(zone):
            return (
                f"The bucket gs://{self.bucket} is in the multi-region {self.name}: reading it from "
                f"{region(zone)} may be billed as traffic."
            )
        return (
            f"The bucket gs://{self.bucket} is in {self._place()}, and {zone} is in {region(zone)}: "
            "training reads slowly, and Google bills the traffic between regions."
        )

    @property
    def continent(self) -> str:
        """How the regions of its continent begin: `europe`."""
        return CONTINENTS.get(self.name, _continent(self._regions()[0]))

    def _regions(self) -> tuple[str, ...]:
        return self.regions or DUAL_REGIONS.get(self.name) or (self.name,)

    def _is_around(self, place: str) -> bool:
        prefix, others = MULTI_REGIONS.get(self.name, ("", ()))
        return not self.regions and bool(prefix) and place.startswith(prefix) and place not in others

    def _place(self) -> str:
        listed = self.regions or DUAL_REGIONS.get(self.name, ())
        return " and ".join(listed) if listed else self.name


def nearest_first(zones: Iterable[str], location: BucketLocation | None) -> list[str]:
    """Return zones in the order in which to try them: those where the bucket is, those around it, others.

    Among the others, those of the bucket's continent come first. The given order decides among equals, and
    everything where nobody knows the bucket's location.
    """
    if location is None:
        return list(zones)
    return sorted(
        zones,
        key=lambda zone: (
            not location.is_in_region(zone),
            not location.is_near(zone),
            _continent(zone) != location.continent,
        ),
    )


def _continent(place: str) -> str:
    return place.partition("-")[0]
