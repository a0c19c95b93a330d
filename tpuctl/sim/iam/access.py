"""Decides whether the caller of the current request has a permission; nothing is decided without `--iam`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from tpuctl.sim.iam.policies import Binding, Policies, Resource, bucket_bindings
from tpuctl.sim.json_values import JsonObject

BucketPolicy = Callable[[str], tuple[str, JsonObject] | None]
"""Bucket -> its project and its policy; None for a bucket that does not exist."""


@dataclass(frozen=True)
class Access:
    """The policies of the simulated cloud."""

    policies: Policies
    bucket_policy: BucketPolicy

    def allows(self, member: str, permission: str, resource: Resource) -> bool:
        """Return whether a member (`user:...`, '' for anonymous) has a permission on a resource."""
        return self.policies.allows(member, permission, resource, self._bindings(resource))

    def bucket(self, name: str) -> Resource | None:
        """Return a bucket; None if it does not exist."""
        stored = self.bucket_policy(name)
        if stored is None:
            return None
        return Resource(stored[0], f"projects/_/buckets/{name}", "storage.googleapis.com/Bucket", name)

    def object(self, bucket: str, name: str) -> Resource | None:
        """Return an object, existing or not; None if its bucket does not exist."""
        stored = self.bucket_policy(bucket)
        if stored is None:
            return None
        path = f"projects/_/buckets/{bucket}/objects/{name}"
        return Resource(stored[0], path, "storage.googleapis.com/Object", bucket)

    def _bindings(self, resource: Resource) -> tuple[Binding, ...]:
        if resource.account:
            return tuple(self.policies.accounts.get(resource.account, ()))
        stored = self.bucket_policy(resource.bucket) if resource.bucket else None
        return bucket_bindings(json.dumps(stored[1], sort_keys=True)) if stored else ()


@dataclass(frozen=True)
class Caller:
    """Who sent a request."""

    member: str
    """`user:E-MAIL`, `serviceAccount:E-MAIL` or `group:E-MAIL`; '' for an anonymous caller."""
    access: Access

    @property
    def label(self) -> str:
        """How Google names the caller in errors."""
        return self.member.partition(":")[2] or "Anonymous caller"

    def may(self, permission: str, resource: Resource) -> bool:
        """Return whether the caller has a permission on a resource."""
        return self.access.allows(self.member, permission, resource)


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller | None:
    """Return the caller of the current request; None for the simulator itself and without `--iam`."""
    return _caller.get()


def set_caller(caller: Caller | None) -> None:
    """Set the caller of the current request, for the rest of its task."""
    _caller.set(caller)
