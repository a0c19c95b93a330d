"""Defines the interface of a provider of nodes; each provider is a package beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tpuctl.accelerators import Accelerator
from tpuctl.nodes import (
    Change,
    Creation,
    History,
    HttpRequest,
    Maintenance,
    Node,
    NodeId,
    NodeList,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    SshKey,
    UpdateNode,
)
from tpuctl.polling import BACKOFF, Backoff, poll


@dataclass(frozen=True)
class Operation:
    """A change that the provider has accepted and carries out by itself."""

    subject: str
    """The resource, as messages name it: `Node 'n1' in us-east1-d`."""
    is_done: Callable[[], bool]
    """Raises the operation's error when it has failed."""

    def wait(self, change: str, timeout: float, *, hint: str = "", backoff: Backoff = BACKOFF) -> None:
        """Return when the operation is done; `change` completes "Waited 30 s for Node 'n1' ...".

        Raises the operation's error, and DeadlineError with `hint` after `timeout` seconds.
        """
        poll(
            lambda: self.is_done() or None,
            awaiting=f"{self.subject} {change}",
            timeout=timeout,
            hint=hint,
            backoff=backoff,
        )


class Provider(Protocol):
    """The nodes of one project; every method raises tpuctl's errors.

    Requests that may be repeated are retried while the service is unavailable; CreateNode never is.
    """

    def node_id(self, zone: str, name: str) -> NodeId:
        """Return the identity of a node of this project, without a uid; sends nothing."""

    def list_nodes(self, zone: str | None = None) -> NodeList:
        """Return the nodes of a zone, or of every zone."""

    def get_node(self, node: NodeId) -> Node:
        """Return a node; raises NotFoundError only when the provider says that it does not exist.

        A node with another uid than the one given is another node. Slices that are named are joined.
        """

    def queued_resource_id(self, zone: str, name: str) -> QueuedResourceId:
        """Return the identity of a queued resource of this project; sends nothing."""

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        """Return the queued resources of a zone, or of every zone."""

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> QueuedResource:
        """Return a queued resource; raises NotFoundError only when the provider says so."""

    def check(self, creation: Creation) -> None:
        """Raise UsageError for a creation that the provider would refuse; sends nothing."""

    def begin(self, change: Change) -> Operation:
        """Start to carry out a change.

        After a lost answer to CreateNode look for the node before another: it is sent once.
        """

    def creations(self, node: NodeId) -> Mapping[str, Operation]:
        """Return the operations that create or created a node of this name, by the provider's names of them.

        Those of the last days, as far as the provider lists them; for a create whose answer is lost.
        """

    def history(self, name: str | None, zone: str | None = None) -> History:
        """Return what the provider remembers of changes to nodes and queued resources called `name`.

        None for those of any name.
        """

    def maintenance(self, zone: str | None = None) -> Mapping[str, Maintenance]:
        """Return the announced maintenance of nodes in a zone, or in every zone, by the nodes' uids."""

    def http_request(self, change: Change) -> HttpRequest:
        """Return the request that `begin` sends; sends nothing."""

    def ssh_key_change(self, node: Node, key: SshKey) -> UpdateNode | None:
        """Return the change that lets a key log in besides those that a node accepts; None if it may."""

    def ignores_ssh_keys(self, metadata: Mapping[str, str]) -> bool:
        """Whether hosts of a node with this metadata let no key log in that their metadata holds.

        False where that cannot be known: only the hosts decide.
        """

    def host_keys(self, node: NodeId) -> Mapping[int, str]:
        """Return the public ed25519 host key (base64) of each worker that has published one."""

    def hostname(self, node: NodeId, worker: int) -> str | None:
        """Return the name of a worker's instance, by which its network knows it; None while it has none."""

    def list_zones(self) -> list[str]:
        """Return the zones that the provider offers to the project."""

    def host_notes(self, node: NodeId, namespace: str, key: str) -> Mapping[int, str]:
        """Return what each worker's programs wrote for others under a name; they may write anything."""

    def list_accelerator_types(self, zone: str) -> list[str]:
        """Return the accelerator types that a zone offers."""

    def list_runtimes(self, zone: str) -> list[str]:
        """Return the runtimes (system images) that a zone offers."""

    def default_runtime(self, accelerator: Accelerator, framework: str, offered: list[str]) -> str:
        """Return the runtime for a framework, the newest one of those that a zone offers; sends nothing."""
