"""Knows OS Login: where it is on, hosts ignore the keys in metadata, and with them those of tpuctl."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.cloud.provider import Provider
from tpuctl.errors import HostError
from tpuctl.nodes import Node

HINT = (
    "Create it with '--metadata enable-oslogin=FALSE'; or add your key to your OS Login profile "
    "('gcloud compute os-login ssh-keys add --key-file FILE.pub') and set ssh_user to the user name of that "
    "profile ('gcloud compute os-login describe-profile')."
)


def warning(provider: Provider, metadata: Mapping[str, str]) -> str:
    """Return what to know before a node with this metadata is created; empty where keys log in."""
    if not provider.ignores_ssh_keys(metadata):
        return ""
    return f"Warning: OS Login is on: hosts ignore the SSH key that tpuctl gives them. {HINT}"


def refusal(node: Node) -> HostError:
    """Return the error of a host that refuses a key because of OS Login."""
    return HostError(
        f"OS Login is on for '{node.name}': its hosts ignore the SSH key that tpuctl gave them.", hint=HINT
    )
