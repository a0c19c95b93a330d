"""The base of the methods by subject: the world, the version's messages, pages with a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.tpu.methods.request_fields import Filtered
from tpuctl.sim.world import Operation, RequestContext, World, api_error, names
from tpuctl.sim.world.filters import matcher
from tpuctl.sim.world.pages import page

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
    project = names.parse(parent).project
    return [f"projects/{project}/locations/{zone}" for zone in zones]
