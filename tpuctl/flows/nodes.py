"""Creating, finding, listing and deleting nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    NotFoundError,
    PreemptedError,
    StateError,
    UsageError,
    nearest,
)
from tpuctl.fanout import fanout, values
from tpuctl.nodes import COMING, GONE, LABEL, LABEL_VALUE, OWNER_LABEL, Node, NodeRequest
from tpuctl.waiting import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.tpu import Operation, TpuApi

Tell = Callable[[str], None]

CREATE_TIMEOUT = 1800.0
DELETE_TIMEOUT = 900.0
SSH_TIMEOUT = 300.0
NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Wanted:
    """What `up` was asked for."""

    accelerator: str
    name: str
    zone: str
    runtime: str | None
    framework: str
    spot: bool
    network: str
    service_account: str | None


@dataclass(frozen=True)
class UpPlan:
    """What `up` will do: create by `request`, or use `found`."""

    request: NodeRequest
    found: Node | None
    hosts: int
    chips: int


def default_name(user: str, accelerator: str) -> str:
    """Return the name of a user's node of a type when none is given: the same each time, so `up` finds it."""
    return re.sub(r"[^-a-z0-9]", "-", f"{user}-{accelerator}".lower()).lstrip("-0123456789") or "tpu"


def plan_up(tpu: TpuApi, ssh: Ssh, wanted: Wanted) -> UpPlan:
    """Check what was asked against the catalogue and the zone, and return what there is to do.

    Sends reads only. Raises UsageError for a type or runtime that the zone does not offer, StateError
    when the name belongs to a node of another type or one that is on its way out.
    """
    kind = accelerators.accelerator(wanted.accelerator)
    if not NODE_NAME.fullmatch(wanted.name):
        raise UsageError(
            f"'{wanted.name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    _check_zone(tpu, kind, wanted.zone)
    runtime = _runtime(tpu, kind, wanted)
    found = _find(tpu, wanted)
    request = NodeRequest(
        name=wanted.name,
        project=tpu.project,
        zone=wanted.zone,
        accelerator=kind.type,
        runtime=runtime,
        spot=wanted.spot,
        network=wanted.network,
        service_account=wanted.service_account,
        labels={LABEL: LABEL_VALUE, OWNER_LABEL: ssh.user},
        metadata={"ssh-keys": _key_line(ssh)},
    )
    return UpPlan(request, found, kind.hosts, kind.chips)


def up(tpu: TpuApi, ssh: Ssh, plan: UpPlan, tell: Tell) -> Node:
    """Do what the plan says and return the node once every host answers over SSH.

    Raises StockoutError, QuotaError, PreemptedError, HostError or DeadlineError; on Ctrl-C an
    InterruptedByUser that says how to go on, since a create that was sent goes on by itself.
    """
    name, zone, kind = plan.request.name, plan.request.zone, plan.request.accelerator
    try:
        if plan.found is None:
            _create(tpu, plan.request, tell)
        node = _await_ready(tpu, zone, name, tell)
        node = _install_key(tpu, ssh, node, tell)
        _await_ssh(tpu, ssh, node, tell)
    except KeyboardInterrupt as error:
        raise InterruptedByUser(
            f"Interrupted while '{name}' was on its way; it may bill already.",
            hint=f"'tpuctl up {kind} --name {name}' goes on, 'tpuctl down {name}' ends it.",
        ) from error
    return node


def plan_down(tpu: TpuApi, names: Sequence[str], owner: str) -> list[Node]:
    """Return the nodes to delete: those named, or all that tpuctl made for `owner`, in every zone.

    Raises NotFoundError for a name that is nowhere, DeadlineError when a zone did not answer.
    """
    listing = tpu.nodes()
    if names:
        by_name = {node.name: node for node in listing.nodes}
        missing = [name for name in names if name not in by_name]
        if missing and not listing.unreachable:
            raise NotFoundError(
                f"There is no node '{missing[0]}'.",
                hint=_did_you_mean(missing[0], list(by_name)),
                nodes=missing,
            )
        chosen = [by_name[name] for name in names if name in by_name]
    else:
        chosen = [node for node in listing.nodes if node.managed and node.owner == owner]
    if listing.unreachable:
        raise DeadlineError(
            f"No answer from {', '.join(listing.unreachable)}: something there may go on billing.",
            hint="Try again in a minute.",
        )
    return chosen


def down(tpu: TpuApi, nodes: Sequence[Node], tell: Tell) -> None:
    """Delete nodes, all at once, and return when the API says that each is gone."""

    def one(node: Node) -> None:
        try:
            operation = tpu.delete(node)
        except (NotFoundError, StateError):
            operation = None  # somebody deletes it already: the wait below decides
        poll(
            lambda: _gone(tpu, node, operation),
            what=f"node '{node.name}' to be deleted",
            timeout=DELETE_TIMEOUT,
            hint="Run 'tpuctl down' again.",
        )
        tell(f"deleted {node.name}")

    values(fanout(one, nodes))


def find_ready(tpu: TpuApi, name: str | None, accelerator: str | None, owner: str) -> Node:
    """Return the node to use: the one named, else the user's only READY one of the type."""
    nodes = tpu.nodes().nodes
    if name:
        named = [node for node in nodes if node.name == name]
        if not named:
            hint = _did_you_mean(name, [node.name for node in nodes])
            raise NotFoundError(f"There is no node '{name}'.", hint=hint, node=name)
        return _require_ready(named[0])
    fitting = [
        node for node in nodes
        if node.managed and node.owner == owner and accelerator in (None, node.accelerator)
    ]  # fmt: skip
    ready = [node for node in fitting if node.state == "READY"]
    if len(ready) > 1:
        names = ", ".join(node.name for node in ready)
        raise StateError(f"Several nodes fit: {names}.", hint="Choose one with --tpu NAME.")
    if ready:
        return ready[0]
    if fitting:
        return _require_ready(fitting[0])
    raise StateError(
        f"There is no {accelerator or 'TPU'} to run on.",
        hint=f"Create one: tpuctl up {accelerator or 'v3-8'}",
    )


def _require_ready(node: Node) -> Node:
    if node.state in GONE:
        raise PreemptedError(
            f"Node '{node.name}' is {node.state}.",
            hint=f"Delete it ('tpuctl down {node.name}') and create it again.",
        )
    if node.state != "READY":
        raise StateError(f"Node '{node.name}' is {node.state}.", hint="'tpuctl ls' shows when it is READY.")
    return node


def _check_zone(tpu: TpuApi, kind: accelerators.Accelerator, zone: str) -> None:
    """The zone's own list decides; the catalogue only names alternatives."""
    if zone not in accelerators.zones():
        close = nearest(zone, accelerators.zones())
        if close and accelerators.region(zone) not in map(accelerators.region, accelerators.zones()):
            raise UsageError(
                f"There is no zone '{zone}' with TPUs.", hint=f"Did you mean {close[0]}?", zone=zone
            )
    if kind.type not in tpu.accelerator_types(zone):
        raise UsageError(
            f"{kind.type} is not offered in {zone}.",
            hint=f"It has been seen in {', '.join(kind.zones)}.",
            zone=zone,
            accelerator=kind.type,
        )


def _runtime(tpu: TpuApi, kind: accelerators.Accelerator, wanted: Wanted) -> str:
    offered = tpu.runtimes(wanted.zone)
    if wanted.runtime:
        if wanted.runtime not in offered:
            close = nearest(wanted.runtime, offered)
            raise UsageError(
                f"{wanted.zone} has no runtime version '{wanted.runtime}'.",
                hint=f"The nearest are {', '.join(close or offered[:3])}.",
                runtime=wanted.runtime,
            )
        return wanted.runtime
    if wanted.framework == "tensorflow" and kind.generation in TENSORFLOW_IMAGES:
        fitting = accelerators.tensorflow_runtimes(offered, kind.hosts)
        if fitting:
            return fitting[0]
    return kind.base_runtime


TENSORFLOW_IMAGES = ("v2", "v3", "v4")
"""Generations for which Google builds images with TensorFlow in them."""


def _find(tpu: TpuApi, wanted: Wanted) -> Node | None:
    try:
        found = tpu.node(wanted.zone, wanted.name)
    except NotFoundError:
        return None
    if found.accelerator != wanted.accelerator:
        raise StateError(
            f"Node '{found.name}' exists and is a {found.accelerator}.",
            hint="Give the new one another name with --name, or delete the old one with 'tpuctl down'.",
        )
    if found.state != "READY" and found.state not in COMING:
        return _require_ready(found)
    return found


def _create(tpu: TpuApi, request: NodeRequest, tell: Tell) -> None:
    tell(f"creating {request.name} ({request.accelerator}) in {request.zone}")
    try:
        operation = tpu.create(request)
    except (DeadlineError, ConflictError):
        # The answer may be lost although the node was made: look, and never send a second create blindly.
        try:
            tpu.node(request.zone, request.name)
        except NotFoundError:
            pass
        else:
            return
        raise
    poll(
        lambda: tpu.finished(operation) or None,
        what=f"{operation.what} to be created",
        timeout=CREATE_TIMEOUT,
        hint=f"It may still come: 'tpuctl up' again waits on, 'tpuctl down {request.name}' gives up.",
    )


def _await_ready(tpu: TpuApi, zone: str, name: str, tell: Tell) -> Node:
    said = set[str]()

    def ready() -> Node | None:
        node = tpu.node(zone, name)
        if node.state == "READY":
            return node
        if node.state not in COMING:
            _require_ready(node)
        if node.state not in said:
            said.add(node.state)
            tell(f"{name} is {node.state}")
        return None

    return poll(ready, what=f"node '{name}' to be READY", timeout=CREATE_TIMEOUT, hint="See 'tpuctl ls'.")


def _install_key(tpu: TpuApi, ssh: Ssh, node: Node, tell: Tell) -> Node:
    line = _key_line(ssh)
    lines = [one for one in node.metadata.get("ssh-keys", "").split("\n") if one]
    if line in lines:
        return node
    tell(f"adding your SSH key to {node.name}")
    metadata = {**node.metadata, "ssh-keys": "\n".join([*lines, line])}
    operation = tpu.update_metadata(node, metadata)
    poll(lambda: tpu.finished(operation) or None, what=f"{operation.what} to take the SSH key", timeout=120)
    return replace(node, metadata=metadata)


def _await_ssh(tpu: TpuApi, ssh: Ssh, node: Node, tell: Tell) -> None:
    """Keys take seconds to arrive on the hosts and a first boot takes longer: try until the time is up."""
    tell(f"waiting for SSH on {len(node.addresses)} host{'s' if len(node.addresses) > 1 else ''}")
    keys: Mapping[int, str] = poll(
        lambda: _all_keys(tpu, node), what=f"the host keys of '{node.name}'", timeout=SSH_TIMEOUT,
        hint="They come with guest attributes: see that the project has not turned them off.",
    )  # fmt: skip

    def reachable(worker: int) -> None:
        last = ""

        def answers() -> bool | None:
            nonlocal last
            try:
                with ssh.connect(node, worker, keys[worker]) as session:
                    return session.run(["true"]).code == 0
            except HostError as error:
                last = f"{error.message} {error.hint}"
                return None

        try:
            poll(answers, what=f"SSH on worker {worker}", timeout=SSH_TIMEOUT)
        except DeadlineError as error:
            raise HostError(f"Worker {worker} of '{node.name}' is not reachable: {last}") from error

    values(fanout(reachable, range(len(node.addresses))))


def _all_keys(tpu: TpuApi, node: Node) -> Mapping[int, str] | None:
    keys = tpu.host_keys(node)
    return keys if len(keys) == len(node.addresses) else None


def _gone(tpu: TpuApi, node: Node, operation: Operation | None) -> bool | None:
    if operation and not tpu.finished(operation):
        return None
    try:
        found = tpu.node(node.zone, node.name)
    except NotFoundError:
        return True
    return True if found.uid != node.uid else None


def _key_line(ssh: Ssh) -> str:
    return f"{ssh.user}:{ssh.public_key()} {ssh.user}"


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There are: {', '.join(known)}." if known else "There are none."
