"""A metadata server outside the slices: by it Google's clients find credentials anywhere on this machine."""

from __future__ import annotations

from pathlib import Path

from tpuctl.sim.hosts.identity import Identity, Signer
from tpuctl.sim.hosts.metadata_server import MetadataServer
from tpuctl.sim.hosts.metadata_tree import workstation_tree


def workstation(folder: Path, project: str) -> MetadataServer:
    """Return it, not opened yet; `folder` keeps its secrets."""
    folder.mkdir(mode=0o700, exist_ok=True)
    identity = Identity(folder / "access_token", Signer(folder / "identity.pem"))
    return MetadataServer(workstation_tree(project), identity, None)
