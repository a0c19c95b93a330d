"""The command sim status."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder

LABELS = {
    "tpu_grpc": "Cloud TPU API (gRPC)",
    "tpu_rest": "Cloud TPU API (REST)",
    "storage": "Cloud Storage",
}
"""Field of the JSON form -> its label in the text form, where they differ."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def status(as_json: bool) -> None:
    """Show whether the simulator runs, and the addresses of its services.

    \b
    Example:
      tpuctl sim status
    """
    endpoints = simulator.running(simulator_folder())
    if endpoints:
        show_endpoints(endpoints, as_json=as_json)
    elif as_json:
        output.json({"running": False})
    else:
        output.note("The simulator is not running.")
        output.hint("tpuctl sim start")


def show_endpoints(endpoints: simulator.PublishedEndpoints, *, as_json: bool) -> None:
    """Print the addresses of a running simulator."""
    fields = {
        "running": True,
        "pid": endpoints.pid,
        "project": endpoints.project,
        "bucket": endpoints.bucket,
        "tpu_grpc": endpoints.tpu_grpc,
        "tpu_rest": endpoints.tpu_rest,
        "storage": endpoints.storage,
        "egress": endpoints.egress,
        "external_ips": endpoints.external_ips,
        "iam": endpoints.iam or None,
        "folder": str(simulator_folder()),
    }
    if as_json:
        output.json(fields)
    else:
        fields["iam"] = f"enforced, this shell as {endpoints.iam}" if endpoints.iam else "not enforced"
        output.facts({LABELS.get(name, name): value for name, value in fields.items()})
