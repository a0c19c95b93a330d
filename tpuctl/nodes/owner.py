"""Turns the identity of a person or an account into the label by which its nodes are found again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuctl.host.keeper.records import BUCKET

if TYPE_CHECKING:
    from tpuctl.nodes.node import NodeId
    from tpuctl.nodes.queued_resources import QueuedResourceId

LABEL = "managed-by"
LABEL_VALUE = "tpuctl"
TERRAFORM = "terraform"
"""Value of LABEL on what terraform/ keeps: all members may use it, and Terraform alone deletes it."""
BASE_LABEL = "tpuctl-base"
"""Which base of terraform/ keeps it."""
OWNER_LABEL = "tpuctl-owner"
OWNER_METADATA = "tpuctl-owner"
"""The identity in full, which a label cannot hold."""
RUN_LABEL = "tpuctl-run"
"""The run that `tpuctl run` made a node for: that run's end may end the node, too."""
FORMER_OWNER_LABEL = "tpuctl-user"
"""Of earlier versions: the name of a local user, which many people share."""
RESTART_LABEL = "tpuctl-restart"
"""The run for whose restart a watcher made a node, which is deleted with the run's end."""
READABLE = 48
"""Characters of a label's readable part; a label has 63 at most."""


def owner_label(identity: str) -> str:
    """Return the label's value for an identity such as `ada@example.com`: readable, and another one for each.

    Lower-case letters, digits, `-` and `_`, 63 at most (Google Cloud's rule for labels).
    """
    readable = re.sub(r"[^a-z0-9_-]+", "-", identity.lower()).strip("-")[:READABLE]
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}".lstrip("-")


class Owned:
    """What carries the labels and the metadata of its owner: a node, a queued resource, or both."""

    if TYPE_CHECKING:  # fields of the one, properties of the other

        @property
        def id(self) -> NodeId | QueuedResourceId: ...

        @property
        def labels(self) -> Mapping[str, str]: ...

        @property
        def metadata(self) -> Mapping[str, str]: ...

    @property
    def name(self) -> str:
        return self.id.name

    @property
    def zone(self) -> str:
        return self.id.zone

    @property
    def deletion(self) -> str:
        """The command that deletes it."""
        return "terraform apply" if self.is_kept_by_terraform else f"tpuctl down {self.name}"

    @property
    def managed(self) -> bool:
        """Created by tpuctl, so `tpuctl down` may delete it."""
        return self.labels.get(LABEL) == LABEL_VALUE

    @property
    def is_kept_by_terraform(self) -> bool:
        """Whether Terraform created it: no command of tpuctl deletes it."""
        return self.labels.get(LABEL) == TERRAFORM

    @property
    def owner(self) -> str:
        """Whose it is, for people to read; empty if nobody knows."""
        labels = self.labels
        if self.is_kept_by_terraform:
            base = labels.get(BASE_LABEL)
            return f"{TERRAFORM} ({base})" if base else TERRAFORM
        return (
            self.metadata.get(OWNER_METADATA) or labels.get(OWNER_LABEL) or labels.get(FORMER_OWNER_LABEL, "")
        )

    def is_owned_by(self, identity: str) -> bool:
        """Whether tpuctl created it for an identity."""
        return self.managed and self.labels.get(OWNER_LABEL) == owner_label(identity)

    def is_recorded_in(self, bucket: str) -> bool:
        """Whether its runs are recorded in a bucket: each bucket may have runs of the same names."""
        return self.metadata.get(BUCKET, bucket) == bucket

    def is_made_for(self, run: str, bucket: str) -> bool:
        """Whether it was made for a run of a bucket, or for a restart of it."""
        is_made = run in (self.labels.get(RUN_LABEL), self.labels.get(RESTART_LABEL))
        return is_made and self.is_recorded_in(bucket)

    def restarted_run(self, bucket: str) -> str:
        """The run of a bucket for whose restart it was made; empty for none."""
        return self.labels.get(RESTART_LABEL, "") if self.is_recorded_in(bucket) else ""

    def is_usable_by(self, identity: str) -> bool:
        """Whether a command without a name may choose it: one's own, or Terraform's for all of a project."""
        return self.is_kept_by_terraform or self.is_owned_by(identity)
