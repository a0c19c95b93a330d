"""The setting `subnetworks`: the name of the subnetwork in each region that has one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.errors import ConfigError

if TYPE_CHECKING:
    from tpuctl.config.layers import Config

SUBNETWORKS = "subnetworks"
OF_A_REGION = re.compile(r".*/regions/([^/]+)/subnetworks/[^/]+")
"""A subnetwork's full name, which says its region."""


def joined(subnetworks: Mapping[str, str]) -> str:
    """Return the setting's value as variables and `config show` have it: `REGION=NAME,REGION=NAME`."""
    return ",".join(f"{region}={name}" for region, name in subnetworks.items())


def parted(text: str) -> dict[str, str]:
    """Return region -> subnetwork of a value that `normalize` has checked."""
    return dict(pair.split("=") for pair in text.split(",")) if text else {}


def of_config(config: Config) -> Mapping[str, str]:
    """Return the subnetwork of each region; empty where one setting names that of all zones.

    A `subnetwork` of a stronger layer counts alone, such as one in TPUCTL_SUBNETWORK.
    """
    text = config.get(SUBNETWORKS)
    single, table = config.values["subnetwork"], config.values[SUBNETWORKS]
    if text is None or (single.value is not None and single.origin != table.origin):
        return {}
    return parted(text)


def subnetwork_in(zone: str, subnetwork: str, subnetworks: Mapping[str, str]) -> str:
    """Return the subnetwork of a TPU in a zone; raises ConfigError where its region has none."""
    region = accelerators.region(zone)
    if subnetworks and region not in subnetworks:
        raise ConfigError(
            f"The network has no subnetwork in {region}, the region of {zone}.",
            hint=f"Use a zone of {' or '.join(subnetworks)}, or add one: regions of terraform/, or "
            f"{SUBNETWORKS} in tpuctl.toml.",
            zone=zone,
        )
    named = OF_A_REGION.fullmatch(subnetwork)
    if not subnetworks and named and named[1] != region:
        raise ConfigError(
            f"Subnetwork '{subnetwork.rpartition('/')[2]}' is in {named[1]}, and {zone} is not.",
            hint=f"Use a zone of {named[1]}, or name a subnetwork of {region} with --subnetwork.",
            zone=zone,
        )
    return subnetworks[region] if subnetworks else subnetwork
