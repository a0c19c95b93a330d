"""Prints nodes as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tpuctl import clock
from tpuctl.cli import output
from tpuctl.cli.session import Session
from tpuctl.nodes import Node

COLUMNS = ("NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE")


def show_nodes(session: Session, nodes: Sequence[Node], unreachable: Sequence[str] = ()) -> None:
    """Print nodes, and the zones that did not answer, as the user asked: as a table or as JSON."""
    if session.as_json:
        output.json({"nodes": [_fields(node) for node in nodes], "unreachable": list(unreachable)})
        return
    node_table(nodes, session.now)
    for zone in unreachable:
        output.note(f"Warning: no answer from {zone}: its nodes are not listed.")


def node_table(nodes: Sequence[Node], now: datetime, *, err: bool = False) -> None:
    """Print a line for each node, on stdout or on stderr."""
    rows = [
        (
            node.name,
            node.zone,
            node.accelerator,
            len(node.addresses) or "",
            node.provider_state,
            "yes" if node.spot else "no",
            node.runtime,
            clock.age(node.created, now),
        )
        for node in nodes
    ]
    output.table(COLUMNS, rows, err=err)


def _fields(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "project": node.id.project,
        "zone": node.zone,
        "accelerator": node.accelerator,
        "state": node.provider_state,
        "health": node.health,
        "spot": node.spot,
        "runtime": node.runtime,
        "created": node.created,
        "addresses": list(node.addresses),
        "labels": dict(node.labels),
    }
