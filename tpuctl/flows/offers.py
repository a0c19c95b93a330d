"""Asks every zone at once what it offers, and lays the catalogue of this version beside the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.quotas import QuotaList
from tpuctl.cloud.provider import Provider
from tpuctl.errors import TpuctlError, UsageError, in_one_line, nearest
from tpuctl.parallel import fanout

WIDTH = 48
"""Zones that are asked at a time, each by one request."""
API, CATALOGUE = "API", "catalogue"


@dataclass(frozen=True)
class ZoneOffer:
    """What one zone offers."""

    zone: str
    live: tuple[str, ...] | None
    """Names that the API lists, of types or of runtimes; None where it has not answered."""
    catalogue: tuple[str, ...] = ()
    """Names that this version of tpuctl knows of the zone."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the zone offers: the API decides, and the catalogue where it has not answered."""
        return self.catalogue if self.live is None else self.live

    def offers(self, name: str) -> bool | None:
        """Whether the zone offers it; None if nobody has answered."""
        return None if self.live is None else name in self.live

    def is_documented(self, name: str) -> bool:
        """Whether Google's page of regions and zones names it there."""
        kind = accelerators.catalogue().get(name)
        return bool(kind and self.zone in kind.documented)

    def sources(self, name: str) -> str:
        """Which sources name it: `API`, `catalogue`, or both."""
        named = {API: name in (self.live or ()), CATALOGUE: name in self.catalogue}
        return ", ".join(source for source, is_named in named.items() if is_named)

    @property
    def source(self) -> str:
        """Where `names` are from."""
        return CATALOGUE if self.live is None else API


@dataclass(frozen=True)
class Survey:
    """What every zone offers, and why some have not answered."""

    zones: tuple[ZoneOffer, ...]
    silent: Mapping[str, str]
    """Zone that has not answered, or is forbidden -> the reason."""

    def of(self, name: str) -> tuple[ZoneOffer, ...]:
        """Return the zones that offer something by either source."""
        return tuple(zone for zone in self.zones if zone.sources(name))

    @property
    def names(self) -> list[str]:
        """Return all that any zone offers by either source, in the order of the catalogue."""
        listed = {name for zone in self.zones for name in (*zone.names, *zone.catalogue)}
        order = {name: place for place, name in enumerate(accelerators.catalogue())}
        return sorted(listed, key=lambda name: (order.get(name, len(order)), name))


def survey_types(provider: Provider, zone: str | None = None) -> Survey:
    """Return the accelerator types that a zone offers, or every zone; raises UsageError for no zone."""
    by_zone = {
        place: tuple(name for name, kind in accelerators.catalogue().items() if place in kind.zones)
        for place in accelerators.zones()
    }
    return _survey(provider, zone, provider.list_accelerator_types, by_zone)


def survey_runtimes(provider: Provider, zone: str | None = None) -> Survey:
    """Return the runtime versions that a zone offers, or every zone; raises UsageError for no zone."""
    kinds = accelerators.catalogue().values()
    by_zone = {
        place: tuple(dict.fromkeys(kind.base_runtime for kind in kinds if place in kind.zones))
        for place in accelerators.zones()
    }
    return _survey(provider, zone, provider.list_runtimes, by_zone)


def read_quotas(read: Callable[[], QuotaList]) -> QuotaList:
    """Return the project's quotas; where they cannot be read, none, with the reason and what to do."""
    try:
        return read()
    except TpuctlError as error:
        return QuotaList((), reason=in_one_line(error))


def default_of(runtime: str) -> list[str]:
    """Return the generations whose runtime this is when a script uses JAX or PyTorch."""
    kinds: Sequence[Accelerator] = list(accelerators.catalogue().values())
    return list(dict.fromkeys(kind.generation for kind in kinds if kind.base_runtime == runtime))


def _survey(
    provider: Provider,
    zone: str | None,
    names_in: Callable[[str], list[str]],
    by_zone: Mapping[str, tuple[str, ...]],
) -> Survey:
    zones = sorted({*provider.list_zones(), *by_zone})
    if zone is not None and zone not in zones:
        close = nearest(zone, zones)
        hint = f"Did you mean {close[0]}?" if close else "'tpuctl zones' lists all."
        raise UsageError(f"There is no zone '{zone}' with TPUs.", hint=hint, zone=zone)
    results = fanout(lambda place: tuple(names_in(place)), zones if zone is None else [zone], WIDTH)
    return Survey(
        tuple(ZoneOffer(result.item, result.value, by_zone.get(result.item, ())) for result in results),
        {result.item: result.error.message for result in results if result.error},
    )
