"""Reads what the creator of a node chose of it, so that another one like it can be made."""

from __future__ import annotations

from google.cloud import tpu_v2

from tpuctl.accelerators import catalogue
from tpuctl.cloud.tpu.names import parse_node_name
from tpuctl.cloud.tpu.rules.metadata import RESERVED, STARTUP_SCRIPT
from tpuctl.nodes import DataDisk, NodeSettings


def read_settings(message: tpu_v2.Node) -> NodeSettings:
    """Return the settings of a node of the API: names in its own project without the project."""
    plain = tpu_v2.Node.pb(message)
    network, account = plain.network_config, plain.service_account
    own = f"projects/{parse_node_name(plain.name, '').project}/"
    return NodeSettings(
        network=_short(network.network, own) or "default",
        subnetwork=_short(network.subnetwork, own),
        external_ips=network.enable_external_ips,
        service_account=account.email,
        scopes=tuple(account.scope),
        tags=tuple(plain.tags),
        data_disks=tuple(
            DataDisk(disk.source_disk, disk.mode != tpu_v2.AttachedDisk.DiskMode.READ_WRITE)
            for disk in plain.data_disks
        ),
        topology=_topology(plain.accelerator_type, plain.accelerator_config.topology),
        secure_boot=plain.shielded_instance_config.enable_secure_boot,
        reserved=plain.scheduling_config.reserved,
        metadata={key: value for key, value in plain.metadata.items() if key not in RESERVED},
        startup_script=plain.metadata.get(STARTUP_SCRIPT, ""),
    )


def _short(name: str, own: str) -> str:
    """Return a network by which the project's other regions know it, too; another project's stays whole."""
    return name.rpartition("/")[2] if name.startswith(own) else name


def _topology(accelerator: str, topology: str) -> str:
    """Return a topology that is not the one that the type has by itself."""
    known = catalogue().get(accelerator)
    return "" if known and known.topology == topology else topology
