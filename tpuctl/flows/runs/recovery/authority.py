"""Decides for which runs a watcher acts, and on which nodes: the records of a run alone decide neither.

Whoever may write to the bucket may write a run.json, and each job may write the attempt.json of any run. So a
run is started again if this machine has submitted it, if somebody confirmed it here, or within limits of the
watcher's own configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from tpuctl.errors import ConfigError, StockoutError, joined_hints
from tpuctl.flows.nodes.lookup import find_node
from tpuctl.flows.runs.submission import launch_values
from tpuctl.nodes import Node, NodeId
from tpuctl.recovery import Machine
from tpuctl.runs import Run, Tpu

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket

OWN_CHOICES = ("topology", "tags", "data_disks", "metadata", "startup_script", "reserved")
"""Parts of a machine that no limit allows: they run as root, reach further, or cost more."""


@dataclass(frozen=True)
class Limits:
    """What a watcher may make for runs that were submitted elsewhere."""

    types: tuple[str, ...]
    zones: tuple[str, ...]
    service_account: str
    network: str = "default"
    subnetwork: str = ""
    subnetworks: Mapping[str, str] = field(default_factory=dict)
    external_ips: bool = True
    max_price: Decimal | None = None
    """Most that the machines of all restarts cost per hour together; None for no limit."""
    _begun: dict[str, Decimal] = field(default_factory=dict)
    """Machines that are being made now, with their prices."""
    _lock: Lock = field(default_factory=Lock)

    def machine(self, run: Run) -> Machine:
        """Return the machine of a restart: as it is configured here, with the choices of the record.

        Raises ConfigError for a record that asks for more.
        """
        asked = run.machine
        assert asked is not None
        if asked.accelerator not in self.types:
            raise _beyond(run, f"a {asked.accelerator}, and watch_types are {', '.join(self.types)}")
        zones = tuple(zone for zone in asked.zones if zone in self.zones)
        if not zones:
            raise _beyond(
                run, f"a TPU in {' or '.join(asked.zones)}, and watch_zones are {', '.join(self.zones)}"
            )
        own = [name.replace("_", " ") for name in OWN_CHOICES if getattr(asked, name)]
        if own:
            raise _beyond(run, f"its own {' and '.join(own)}")
        return msgspec.structs.replace(
            asked,
            zones=zones,
            network=self.network,
            subnetwork=self.subnetwork,
            subnetworks=dict(self.subnetworks),
            external_ips=self.external_ips and asked.external_ips,
            service_account=self.service_account,
            scopes=(),  # what a node with a named account has: its rights are those of IAM alone
        )

    @contextmanager
    def spending(self, name: str, price: Decimal, others: Mapping[str, Decimal]) -> Iterator[None]:
        """Let one machine be made if it and all `others`, with their prices, stay within `max_price`.

        Raises StockoutError if they would not: another step may.
        """
        with self._lock:
            used = sum(cost for other, cost in {**others, **self._begun}.items() if other != name)
            if self.max_price is not None and used + price > self.max_price:
                raise StockoutError(
                    f"{name} would cost {price} per hour, the other machines of restarts cost {used}, and"
                    f" watch_max_price is {self.max_price}."
                )
            self._begun[name] = price
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(name, None)


def machine_of(bucket: str, run: Run, limits: Limits | None) -> Machine:
    """Return the machine on which a run may be started again from here, with what its record leaves out.

    Raises ConfigError for a run that this machine does not know, and that is not within the limits, and
    UsageError that names values which nobody here knows.
    """
    assert run.machine is not None
    if launch_values.known(bucket, run):
        return launch_values.restored_machine(bucket, run, run.machine)
    if limits is None:
        raise ConfigError(
            f"Run '{run.run}' was not submitted from here: its record may be of anybody who may write to"
            f" gs://{bucket}.",
            hint=joined_hints(
                f"See what it would start, and allow it: tpuctl watch {run.run}",
                "Allow some types for runs of other machines: watch_types in tpuctl.toml.",
            ),
            run=run.run,
        )
    return limits.machine(run)


def is_allowed(bucket: str, run: Run, limits: Limits | None) -> bool:
    """Return whether a run may be started again from here without a question.

    Raises ConfigError where its record is not the one that was submitted here.
    """
    if launch_values.known(bucket, run):
        return True
    try:
        machine_of(bucket, run, limits)
    except ConfigError:
        return False
    return True


def own_node(provider: Provider, bucket: Bucket, run: Run, named: Tpu) -> Node | None:
    """Return the node that an attempt's record names; None if it is gone, or is not for this run.

    It is by the labels that it got when it was made, or if the run was submitted to it from here. A node of
    another project never is.
    """
    node = find_node(provider, _in_own_project(provider, named.id))
    if node is None:
        return None
    values = launch_values.known(bucket.name, run)
    is_own = node.is_made_for(run.run, bucket.name) or (values and values.tpu.id == node.id)
    return node if is_own else None


def _in_own_project(provider: Provider, node: NodeId) -> NodeId:
    own = provider.node_id(node.zone, node.name)
    parts = tuple(_in_own_project(provider, part) for part in node.slices)
    return replace(node, provider=own.provider, project=own.project, slices=parts)


def _beyond(run: Run, what: str) -> ConfigError:
    return ConfigError(
        f"Run '{run.run}' was submitted elsewhere, and its record asks for {what}.",
        hint=f"If that is meant, start it where it was submitted, or allow it: tpuctl watch {run.run}",
        run=run.run,
    )
