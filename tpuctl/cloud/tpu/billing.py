"""Reads what TPUs cost from the Cloud Billing Catalog, once a day: public prices, in USD."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec

from tpuctl import clock
from tpuctl.atomic_files import replace_file
from tpuctl.catalogue.prices import Rate, RateList
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.rest import RestApi
from tpuctl.local.private_folder import FILE_MODE, make_private_folder, read_own_file

SERVICE = Service("cloudbilling.googleapis.com", "roles/serviceusage.serviceUsageConsumer")
URL = "https://cloudbilling.googleapis.com"
CLOUD_TPU, COMPUTE_ENGINE = "E000-3F24-B8AA", "6F81-5844-456A"
"""Services of the catalog: the rates of v2 to v4 are in the first, those of later ones in the second."""
BY_DEVICE = ("v2", "v3", "v4")
"""Generations whose rates are those of a device of four chips, and differ for slices (`Pod`)."""
CHIPS_OF_DEVICE = 4
SLICES_ALONE = ("v4",)
"""Generations of which one host costs as much per chip as a slice: only that has a rate."""
FRESH = timedelta(days=1)
KEPT = timedelta(days=31)
"""Age of a list that is good enough where nobody should wait for another: list prices change rarely."""
MOST_BYTES = 4 << 20
"""Of a list that was kept."""

GENERATION = re.compile(r"\bTpu[- ]?v?(\d+[a-z]*)\b", re.IGNORECASE)
OTHER_TERMS = re.compile(
    r"\b(reserved|reservation|calendar|dws|defined duration|flex|commitment|subscription|capacity optimized|"
    r"fixed price)\b",
    re.IGNORECASE,
)
"""What costs something else than a TPU that is created and billed by the hour."""
SPOT = re.compile(r"\b(spot|preemptible)\b", re.IGNORECASE)
SLICE = re.compile(r"\bpod\b", re.IGNORECASE)
FIELDS = (
    "nextPageToken,skus(description,category(resourceGroup,usageType),serviceRegions,"
    "pricingInfo(pricingExpression(usageUnit,tieredRates)))"
)
"""What is read of an SKU: Compute Engine has tens of thousands of them."""


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the API; other fields are skipped."""


class _Money(_Record, frozen=True):
    currency_code: str = ""
    units: int | str = 0
    nanos: int = 0

    @property
    def amount(self) -> Decimal:
        return Decimal(int(self.units)) + Decimal(self.nanos).scaleb(-9)


class _Tier(_Record, frozen=True):
    unit_price: _Money


class _Expression(_Record, frozen=True):
    usage_unit: str = ""
    tiered_rates: tuple[_Tier, ...] = ()


class _Pricing(_Record, frozen=True):
    pricing_expression: _Expression


class _Category(_Record, frozen=True):
    resource_group: str = ""
    usage_type: str = ""


class _Sku(_Record, frozen=True):
    """One row of the price list (https://cloud.google.com/billing/docs/reference/rest/v1/services.skus)."""

    category: _Category
    description: str = ""
    service_regions: tuple[str, ...] = ()
    pricing_info: tuple[_Pricing, ...] = ()


class _SkuPage(_Record, frozen=True):
    skus: tuple[_Sku, ...] = ()
    next_page_token: str = ""


class BillingCatalog:
    """The price list; kept in files of this user for a day."""

    def __init__(self, open_api: Callable[[], RestApi], folder: Path, source: str) -> None:
        """Take what connects to the API, where the lists are kept, and the name of the source."""
        self._open_api = open_api
        self._folder = folder
        self._source = source

    def rates(self, generation: str) -> RateList:
        """Return the list that has the rates of a generation; raises tpuctl's errors."""
        service = _service(generation)
        path = self._path(service)
        stored = self._stored(path, FRESH)
        if stored:
            return stored
        pages = self._open_api().pages(
            f"/v1/services/{service}/skus",
            _SkuPage,
            "the price list",
            pageSize="5000",
            currencyCode="USD",
            fields=FIELDS,
        )
        rates = RateList(
            tuple(_rates(sku for page in pages for sku in page.skus)), self._source, clock.iso(clock.now())
        )
        self._store(path, rates)
        return rates

    def kept(self, generation: str) -> RateList | None:
        """Return the list that is kept here and has the rates of a generation, without asking the service."""
        return self._stored(self._path(_service(generation)), KEPT)

    def _path(self, service: str) -> Path:
        return self._folder / f"{service}.json"

    def _stored(self, path: Path, most: timedelta) -> RateList | None:
        """Return the list of this source that was read lately; whatever is wrong with it, None."""
        try:
            rates = msgspec.json.decode(read_own_file(path, MOST_BYTES), type=RateList)
            age = clock.now() - clock.parse(rates.read)
        except (OSError, ValueError, RecursionError):
            return None
        return rates if rates.source == self._source and timedelta() <= age < most else None

    def _store(self, path: Path, rates: RateList) -> None:
        try:
            make_private_folder(path.parent)
            replace_file(path, [msgspec.json.encode(rates)], mode=FILE_MODE)
        except OSError:
            pass  # it is read again next time: no command fails for it


def _service(generation: str) -> str:
    return CLOUD_TPU if generation in BY_DEVICE else COMPUTE_ENGINE


def _rates(skus: Iterable[_Sku]) -> Iterable[Rate]:
    return (rate for sku in skus if (rate := _rate(sku)))


def _rate(sku: _Sku) -> Rate | None:
    """Return the rate that a row is; None for one that is no price of a chip by the hour."""
    category, text = sku.category, sku.description
    match = GENERATION.search(text)
    if category.resource_group != "TPU" or category.usage_type not in ("OnDemand", "Preemptible"):
        return None
    price = _hour(sku)
    if match is None or price is None or OTHER_TERMS.search(text):
        return None
    generation = match[1].lower()
    generation = generation if generation.startswith("v") else f"v{generation}"
    is_device = generation in BY_DEVICE
    has_two = is_device and generation not in SLICES_ALONE
    return Rate(
        generation=generation,
        spot=category.usage_type == "Preemptible" or bool(SPOT.search(text)),
        slices=bool(SLICE.search(text)) if has_two else None,
        regions=sku.service_regions,
        amount=price.amount / (CHIPS_OF_DEVICE if is_device else 1),
        currency=price.currency_code,
        name=text,
    )


def _hour(sku: _Sku) -> _Money | None:
    """Return the price of an hour: the newest one, beyond any free use."""
    if not sku.pricing_info:
        return None
    expression = sku.pricing_info[-1].pricing_expression
    if expression.usage_unit != "h" or not expression.tiered_rates:
        return None
    price = expression.tiered_rates[-1].unit_price
    return price if re.fullmatch("[0-9]{1,12}", str(price.units)) and price.amount > 0 else None
