"""The methods of the API by subject: each takes a request message, calls the world, returns a response.

- Types the fields of each request that the service reads; the client's own messages have no types.
- The base of the methods by subject: the world, the version's messages, pages with a filter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.world import Operation, RequestContext, World, api_error, resources
from tpuctl.sim.world.resources import matcher, page


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


Method = Callable[[Any], Awaitable[Message]]
"""From the request of a method to its response; the name of a method decides the type of its request."""


class MethodGroup:
    """The methods of one subject, for one version of the API."""

    def __init__(self, world: World, version: str, messages: Mapping[str, Messages]) -> None:
        self._world = world
        self._version = version
        self._all_messages = messages
        self._messages = messages[version]

    def _context(self, request: object) -> RequestContext:
        return RequestContext(self._version, getattr(request, "request_id", ""))

    def _operation(self, operation: Operation) -> Message:
        """Return the message of the API version that began the operation, whichever reads it."""
        message: Message = self._all_messages[operation.context.api_version].operation(operation)
        return message


def filtered_page(request: Filtered, messages_by_name: Mapping[str, Message]) -> tuple[list[Message], str]:
    """Return one page, by name, of the messages that fit the request's filter, and the next token."""
    if getattr(request, "order_by", ""):
        raise api_error("unimplemented", feature="order_by")
    entries = list(messages_by_name.items())
    if request.filter:
        fits = matcher(request.filter)
        entries = [(name, message) for name, message in entries if fits(MessageToDict(message))]
    listed, next_token = page(entries, lambda entry: entry[0], request.page_size, request.page_token)
    return [message for _, message in listed], next_token


def location_names(parent: str, zones: Iterable[str]) -> list[str]:
    """Return the full names of a project's zones."""
    project = resources.parse(parent).project
    return [f"projects/{project}/locations/{zone}" for zone in zones]
