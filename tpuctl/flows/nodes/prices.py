"""Looks up what a TPU costs per hour: in the configuration, then in the price list of the provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.catalogue.prices import OwnPrice, Price, RateList, own_price, unknown
from tpuctl.errors import TpuctlError
from tpuctl.nodes import CreateNode, Creation, Node, QueuedResource
from tpuctl.runs import Tpu

RESERVED = unknown("reserved capacity costs what its contract says")


class Prices:
    """Prices of one command: a list is read at the first price that needs it, and once."""

    def __init__(self, own: Sequence[OwnPrice], read_rates: Callable[[str], RateList]) -> None:
        """Take the rows of the configuration, and what reads the list that has a generation's rates.

        The latter may raise tpuctl's errors: the prices are unknown then, and no command fails for it.
        """
        self._own = own
        self._read_rates = cache(_never_failing(read_rates))

    def price(self, kind: Accelerator, zone: str, *, spot: bool, slices: int = 1) -> Price:
        """Return what some slices of a type cost per hour in a zone."""
        price = own_price(self._own, kind, zone, spot=spot)
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
        """Return what a node costs per hour, or each node of a queued resource."""
        try:
            kind = accelerator(item.accelerator)
        except TpuctlError:
            return unknown(f"this version of tpuctl does not know {item.accelerator or 'its type'}")
        if isinstance(item, QueuedResource) and item.reservation:
            return RESERVED
        return self.price(kind, item.zone, spot=item.spot)


def _never_failing(read_rates: Callable[[str], RateList]) -> Callable[[str], RateList | Price]:
    def read(generation: str) -> RateList | Price:
        try:
            return read_rates(generation)
        except TpuctlError as error:
            return unknown(error.message, error.hint)

    return read
