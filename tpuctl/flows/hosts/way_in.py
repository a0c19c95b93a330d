"""Says whether hosts can be reached, through IAP or from outside, before any of them bills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl.errors import ConfigError, NotFoundError, TpuctlError
from tpuctl.parallel import within

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.nodes import NodeRequest

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


def outside_warning(cloud: Cloud, request: NodeRequest) -> str:
    """Return why perhaps nobody outside of its network can log in on a node; empty where a rule lets some in.

    Sends reads only, and says nothing where they are refused.
    """
    looked = within(lambda: _outside_warning(cloud, request))
    if isinstance(looked.error, NotFoundError):  # a network that does not exist
        return looked.error.message
    return looked.value or ""


def _outside_warning(cloud: Cloud, request: NodeRequest) -> str:
    name, account = request.network.rpartition("/")[2], request.service_account
    if cloud.is_ssh_open(request.network, request.tags, account):
        return ""
    project = cloud.config.require("project")
    return (
        f"No firewall rule of {name} lets machines outside of it reach port 22: perhaps nobody can log in, "
        f"and the TPU bills. Let yours in: gcloud compute firewall-rules create ssh --project {project} "
        f"--network {name} --allow tcp:22 --source-ranges YOUR_ADDRESS/32"
    )
