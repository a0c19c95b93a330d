"""Says whether hosts without external addresses can be reached through IAP, before any of them bills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl.errors import ConfigError, TpuctlError

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud

IAP_RANGE = "35.235.240.0/20"
"""From where IAP reaches hosts: https://cloud.google.com/iap/docs/using-tcp-forwarding"""


def opening_command(project: str, network: str) -> str:
    """Return the command that makes the firewall rule by which IAP reaches the hosts of a network."""
    return (
        f"gcloud compute firewall-rules create ssh-through-iap --project {project} "
        f"--network {network} --source-ranges {IAP_RANGE} --allow tcp:22"
    )


def require_way_in(cloud: Cloud, network: str, zone: str) -> str:
    """Return what could not be checked, as a sentence, or nothing; sends reads only.

    Raises ConfigError where the relay refuses the user, or no firewall rule lets it reach port 22.
    """
    name = network.rpartition("/")[2]
    try:
        cloud.check_relay(zone)
    except TpuctlError as error:
        raise type(error)(f"{error.message} Nothing was created.", hint=error.hint, **error.facts) from error
    try:
        rule = cloud.iap_firewall_rule(network)
    except TpuctlError as error:
        return f"Whether the firewall of {name} lets IAP in was not checked: {error.message}"
    if rule is None:
        raise ConfigError(
            f"Nobody could log in: no firewall rule of {name} lets IAP ({IAP_RANGE}) reach port 22, and the "
            "TPU would have no external address. Nothing was created.",
            hint=f"Make the rule: {opening_command(cloud.config.require('project'), name)}. "
            "Or, inside of the network, pass --no-iap.",
        )
    return ""
