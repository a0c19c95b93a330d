"""Reads upcoming maintenance and simulates it: v2alpha1 of the Cloud TPU API alone offers that in Python."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, cast

from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport as CommonTransport

from tpuctl import clock
from tpuctl.cloud.tpu.api_requests import HOST
from tpuctl.cloud.tpu.names import node_name
from tpuctl.cloud.tpu.sending import send, send_list
from tpuctl.cloud.tpu.states import enum_name
from tpuctl.nodes import HttpRequest, Maintenance, SimulateMaintenance

if TYPE_CHECKING:
    from google.cloud import tpu_v2alpha1


def read_maintenance(client: tpu_v2.TpuClient, parent: str) -> Mapping[str, Maintenance]:
    """Return the upcoming maintenance of the nodes of a location by their uids."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  36 ms, and few commands need it

    alpha = _alpha_client(client)
    request = tpu_v2alpha1.ListNodesRequest(parent=parent)
    pages = send_list("The upcoming maintenance", alpha.list_nodes, request)
    plain = [tpu_v2alpha1.Node.pb(node) for page in pages for node in page.nodes]
    types = tpu_v2alpha1.UpcomingMaintenance
    return {
        str(node.id): Maintenance(
            kind=enum_name(types.MaintenanceType, node.upcoming_maintenance.type_),
            status=enum_name(types.MaintenanceStatus, node.upcoming_maintenance.maintenance_status),
            begins=_time(node.upcoming_maintenance.window_start_time),
            ends=_time(node.upcoming_maintenance.window_end_time),
            can_reschedule=node.upcoming_maintenance.can_reschedule,
        )
        for node in plain
        if node.HasField("upcoming_maintenance")
    }


def _time(text: str) -> str:
    """Return a time, which this message has as RFC 3339; empty for any other text."""
    try:
        return clock.iso(datetime.fromisoformat(text))
    except ValueError:
        return ""


def simulate_maintenance(client: tpu_v2.TpuClient, subject: str, change: SimulateMaintenance) -> str:
    """Begin a simulated maintenance and return its operation's name; `subject` names the node in errors."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  see above

    request = tpu_v2alpha1.SimulateMaintenanceEventRequest(
        name=node_name(change.node), worker_ids=[str(change.worker)]
    )
    future = send(subject, _alpha_client(client).simulate_maintenance_event, request, changes=True)
    return str(future.operation.name)


def simulation_request(change: SimulateMaintenance) -> HttpRequest:
    """Return the HTTP form of a simulated maintenance: google/cloud/tpu/v2alpha1/cloud_tpu.proto."""
    url = f"{HOST}/v2alpha1/{node_name(change.node)}:simulateMaintenanceEvent"
    return HttpRequest("POST", url, {"workerIds": [str(change.worker)]})


def _alpha_client(client: tpu_v2.TpuClient) -> tpu_v2alpha1.TpuClient:
    """Return a client over the connection of the other version's client, with its credentials."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  see above
    from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport  # noqa: PLC0415

    channel = cast(CommonTransport, client.transport).grpc_channel
    return tpu_v2alpha1.TpuClient(transport=TpuGrpcTransport(channel=channel))
