"""Types the fields of each request that the service reads; the client's own messages have no types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message


class NameRequest(Protocol):
    """Get, delete, stop, start, reset ...: a request about the resource that it names."""

    name: str


class ParentRequest(Protocol):
    """A request about a project and zone."""

    parent: str


class ListRequest(ParentRequest, Protocol):
    page_size: int
    page_token: str


class Filtered(Protocol):
    """A request for a page of the resources that fit a filter."""

    filter: str
    page_size: int
    page_token: str


class FilteredListRequest(Filtered, ParentRequest, Protocol):
    """The same of a zone."""


class CreateNodeRequest(ParentRequest, Protocol):
    node_id: str
    node: Message


class UpdateNodeRequest(Protocol):
    node: Message
    update_mask: FieldMask


class WorkersRequest(NameRequest, Protocol):
    """A request about some workers of a node."""

    worker_ids: Sequence[str]


class GetGuestAttributesRequest(WorkersRequest, Protocol):
    query_path: str


class CreateQueuedResourceRequest(ParentRequest, Protocol):
    queued_resource_id: str
    queued_resource: Message


class DeleteQueuedResourceRequest(NameRequest, Protocol):
    force: bool


class PerformMaintenanceQueuedResourceRequest(NameRequest, Protocol):
    node_names: Sequence[str]
