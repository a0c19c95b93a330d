"""Checks a request for a node or a queued resource as a whole."""

from __future__ import annotations

from tpuctl.accelerators import accelerator
from tpuctl.cloud.tpu.rules.disks import check_disks
from tpuctl.cloud.tpu.rules.labels import check_labels
from tpuctl.cloud.tpu.rules.metadata import check_metadata
from tpuctl.cloud.tpu.rules.names import check_node_name, check_reservation, check_tags
from tpuctl.cloud.tpu.rules.scopes import scope_urls
from tpuctl.errors import UsageError
from tpuctl.nodes import CreateNode, Creation, NodeRequest


def check_creation(creation: Creation) -> None:
    """Raise UsageError for what the Cloud TPU API, or Compute Engine behind it, would refuse."""
    if isinstance(creation, CreateNode):
        _check_node(creation.request, slices=1)
        return
    request = creation.request
    check_reservation(request.reservation, request.id.zone)
    _check_tier(request.node, is_reserved=bool(request.reservation))
    _check_node(request.node, request.slices)


def _check_node(request: NodeRequest, slices: int) -> None:
    check_node_name(request.id.name, slices)
    _check_tier(request, is_reserved=False)
    check_labels(request.labels)
    check_metadata(request)
    check_tags(request.tags)
    check_disks(
        request.data_disks, request.id.zone, hosts=accelerator(request.accelerator).hosts, slices=slices
    )
    scope_urls(request.scopes)


def _check_tier(request: NodeRequest, *, is_reserved: bool) -> None:
    if request.spot and (request.reserved or is_reserved):
        raise UsageError(
            "A TPU is spot or uses reserved capacity, not both.",
            hint="Leave out --spot, or --reserved and --reservation.",
        )
