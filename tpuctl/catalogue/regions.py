"""Compares where a bucket is with where TPUs are: another region is slow, and Google bills the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tpuctl.accelerators import region
from tpuctl.errors import UsageError

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
TRAFFIC = {
    # continents of two regions: USD for a GiB that goes from one to the other
    ("us", "us"): "0.02",
    ("europe", "europe"): "0.02",
    ("asia", "asia"): "0.08",
    ("europe", "us"): "0.05",
    ("asia", "us"): "0.08",
    ("asia", "europe"): "0.08",
}
"""Google's list prices (https://cloud.google.com/storage/pricing, data transfer within Google Cloud)."""
MOST_TRAFFIC = "0.14"
"""Of continents that are not in the table: the highest one."""
TIB = 1024
MOST_NAMED = 3
"""Zones or regions that a warning names."""
CONTINENTS = {"eu": "europe"}
"""Multi-region -> how its regions begin, where that is another word."""


def unread(bucket: str) -> str:
    """Return the warning for a bucket that does not say where it is."""
    return f"Warning: where gs://{bucket} is cannot be read: traffic from another region is billed."


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

    def require_near(self, *zones: str, data: str = "", size: int = 0) -> None:
        """Raise UsageError for zones in other regions, with the price of one pass over `data`.

        `size`: its bytes; 0 where they are not known.
        """
        far = [zone for zone in zones if not self.is_near(zone)]
        if not far:
            return
        rate = max(self._rate(zone) for zone in far)
        gib = Decimal(size) / (1 << 30) if size else Decimal(TIB)
        read = f"one pass over {data} ({_gib(gib)})" if size else "each TiB that is read there"
        raise UsageError(
            f"The bucket gs://{self.bucket} is in {self._place()}, and {_listed(far)} "
            f"{'are in other regions' if far[1:] else f'is in {region(far[0])}'}: {read} costs about "
            f"{_usd(rate * gib)} of traffic ({rate} USD per GiB, Google's list price).",
            hint=f"Use a TPU in {self._place()}, or copy the data to a bucket near the TPU. To pay for the "
            "traffic: --cross-region",
            bucket=self.bucket,
            zones=far,
        )

    def warning(self, *zones: str) -> str:
        """Return the sentence that `up` says before a TPU in other regions; empty in the same one."""
        others = {region(zone): zone for zone in reversed(zones) if not self.is_in_region(zone)}
        around = [place for place in reversed(others) if self._is_around(place)]
        far = [zone for place, zone in reversed(others.items()) if not self._is_around(place)]
        bucket = f"The bucket gs://{self.bucket} is in"
        if not far:
            multi_region = f"the multi-region {self.name}: reading it from {_listed(around)}"
            return f"{bucket} {multi_region} may be billed as traffic." if around else ""
        there = " there" if len(far) > 1 else ""
        places = f"is in {region(far[0])}" if len(far) == 1 else "are in other regions"
        too = f"; from {_listed(around)} it may be billed, too" if around else ""
        return (
            f"{bucket} {self._place()}, and {_listed(far)} {places}: training reads slowly{there}, "
            f"and Google bills the traffic between regions{too}."
        )

    def traffic(self, target: BucketLocation, size: str) -> str:
        """Return the sentence before `size` goes from here to another bucket; empty in the same location."""
        if (self.name, self._regions()) == (target.name, target._regions()):
            return ""
        return (
            f"The bucket gs://{self.bucket} is in {self._place()}, and gs://{target.bucket} in "
            f"{target._place()}: Google bills the {size} that leave {self._place()} as traffic."
        )

    @property
    def continent(self) -> str:
        """How the regions of its continent begin: `europe`."""
        return CONTINENTS.get(self.name, _continent(self._regions()[0]))

    def _rate(self, zone: str) -> Decimal:
        """Return what a GiB costs that goes from here to a zone, in USD."""
        pair = sorted((self.continent, _continent(zone)))
        return Decimal(TRAFFIC.get((pair[0], pair[1]), MOST_TRAFFIC))

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


def _gib(amount: Decimal) -> str:
    return f"{amount:.3g} GiB" if amount < TIB else f"{amount / TIB:.3g} TiB"


def _usd(amount: Decimal) -> str:
    return f"{max(amount, Decimal('0.01')):.2f} USD"


def _listed(places: Sequence[str]) -> str:
    """Return names as a sentence has them, the first few of many."""
    first = [*places[:MOST_NAMED], *([f"{len(places) - MOST_NAMED} more"] if places[MOST_NAMED:] else [])]
    return " and ".join(filter(None, (", ".join(first[:-1]), *first[-1:])))


def _continent(place: str) -> str:
    return place.partition("-")[0]
