"""Looks up what a TPU costs per hour: in the configuration, then in the price list of the provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tpuctl.accelerators import Accelerator, accelerator, catalogue
from tpuctl.catalogue.prices import OwnPrice, Price, RateList, own_price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.errors import TpuctlError
from tpuctl.nodes import CreateNode, Creation, Node, QueuedResource
from tpuctl.runs import Tpu

RESERVED = unknown("reserved capacity costs what its contract says")


class Prices:
    """Prices of one command: a list is read at the first price that needs it, and once."""

    def __init__(
        self,
        own: Sequence[OwnPrice],
        read_rates: Callable[[str], RateList],
        kept_rates: Callable[[str], RateList | None] = lambda _: None,
    ) -> None:
        """Take the rows of the configuration, and what reads the list that has a generation's rates.

        The latter may raise tpuctl's errors: the prices are unknown then, and no command fails for it.
        `kept_rates` returns the list that this machine has kept, and asks no service.
        """
        self._own = own
        self._read_rates = cache(_never_failing(read_rates))
        self._kept_rates = cache(kept_rates)

    def price(self, kind: Accelerator, zone: str, *, spot: bool, slices: int = 1) -> Price:
        """Return what some slices of a type cost per hour in a zone."""
        price = own_price(self._own, kind, zone, spot=spot)
        if price is None and not kind.is_known:
            return unknown(f"this version of tpuctl does not know {kind.type}")
        if price is None:
            rates = self._read_rates(kind.generation)
            price = rates if isinstance(rates, Price) else rates.price(kind, zone, spot=spot)
        return price.times(slices)

    def of_creation(self, creation: Creation) -> Price:
        """Return what the nodes of a request cost per hour."""
        if isinstance(creation, CreateNode):
            request, slices, reserved = creation.request, 1, creation.request.reserved
        else:
            request, slices = creation.request.node, creation.request.slices
            reserved = request.reserved or bool(creation.request.reservation)
        if reserved:
            return RESERVED
        return self.price(accelerator(request.accelerator), request.id.zone, spot=request.spot, slices=slices)

    def of(self, item: Node | QueuedResource | Tpu) -> Price:
        """Return what a node costs per hour, with all of its slices, or each node of a queued resource."""
        try:
            kind = accelerator(item.accelerator)
        except TpuctlError:
            return unknown(f"this version of tpuctl does not know {item.accelerator or 'its type'}")
        if _is_reserved(item):
            return RESERVED
        slices = 1 if isinstance(item, QueuedResource) else len(item.slices) or 1
        return self.price(kind, item.zone, spot=item.spot, slices=slices)

    def recorded(self, node: Node) -> RecordedPrice | None:
        """Return what a node costs per hour, for a record; None where that is not known without asking."""
        kind = catalogue().get(node.accelerator)
        if kind is None:
            return None
        if _is_reserved(node):
            return RecordedPrice.of(RESERVED)
        price = own_price(self._own, kind, node.zone, spot=node.spot)
        rates = self._kept_rates(kind.generation) if price is None else None
        price = rates.price(kind, node.zone, spot=node.spot) if rates else price
        return RecordedPrice.of(price.times(len(node.parts))) if price and price.is_known else None


def _is_reserved(item: Node | QueuedResource | Tpu) -> bool:
    if isinstance(item, Node):
        return item.spec.reserved
    return isinstance(item, QueuedResource) and bool(item.reservation)


def _never_failing(read_rates: Callable[[str], RateList]) -> Callable[[str], RateList | Price]:
    def read(generation: str) -> RateList | Price:
        try:
            return read_rates(generation)
        except TpuctlError as error:
            return unknown(error.message, error.hint)

    return read
