"""Checks a request for a node or a queued resource as a whole."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from tpuctl.accelerators import accelerator
from tpuctl.cloud.tpu.rules.disks import check_disks
from tpuctl.cloud.tpu.rules.metadata import check_metadata
from tpuctl.cloud.tpu.rules.names import check_node_name, check_reservation, check_tags
from tpuctl.cloud.tpu.rules.scopes import scope_urls
from tpuctl.errors import UsageError
from tpuctl.nodes import CreateNode, Creation, NodeRequest

MOST_LABELS = 64
LONGEST = 63
"""Characters of a key or a value."""
MOST_BYTES = 128
"""UTF-8 bytes of a key or a value."""
CATEGORIES = frozenset({"Ll", "Lo", "Nd", "Nl", "No"})
"""Of Unicode: lower-case letters, letters without case, numbers; Google's `[\\p{Ll}\\p{Lo}\\p{N}_-]`."""
FIRST = frozenset({"Ll", "Lo"})
RULE = "Labels have lower-case letters of any language, digits, - and _; 63 characters, 128 bytes at most."


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


# The rules of labels: https://cloud.google.com/resource-manager/docs/labels-overview#requirements.


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise UsageError for labels that Google Cloud refuses."""
    for key, value in labels.items():
        if not key or unicodedata.category(key[0]) not in FIRST or not _is_allowed(key):
            raise UsageError(
                f"'{key}' cannot be the key of a label.", hint=f"It begins with a letter. {RULE}", label=key
            )
        if not _is_allowed(value):
            raise UsageError(f"'{value}' cannot be the value of label '{key}'.", hint=RULE, label=key)
    if len(labels) > MOST_LABELS:
        raise UsageError(
            f"{len(labels)} labels are too many.",
            hint=f"A TPU has {MOST_LABELS} at most, tpuctl's own among them.",
            labels=len(labels),
        )


def _is_allowed(text: str) -> bool:
    return (
        len(text) <= LONGEST
        and len(text.encode(errors="surrogatepass")) <= MOST_BYTES
        and all(character in "-_" or unicodedata.category(character) in CATEGORIES for character in text)
    )
