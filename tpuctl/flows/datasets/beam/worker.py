"""One of several machines that make a dataset's shards: it opens the source and the bucket by itself.

datasets/NAME/VERSION/staging/RUN/IDENTITY.json     why a shard could not be made: for who started it
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from tpuctl import errors
from tpuctl.bucket_layout import dataset
from tpuctl.cloud.endpoints import Cloud, Endpoints
from tpuctl.config import Config
from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.output.shards import Shard
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.flows.datasets.conversion import Conversion
from tpuctl.flows.datasets.staging import FOLDER, Staging

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

_KINDS: dict[str, type[TpuctlError]] = {
    one.kind: one
    for one in (
        errors.UsageError,
        errors.ConfigError,
        errors.StateError,
        errors.QuotaError,
        errors.HostError,
        errors.DeadlineError,
    )
}


@dataclass(frozen=True)
class Task:
    """All that a worker is told; it is pickled."""

    config: Config
    endpoints: Endpoints
    asked: Mapping[str, Any]
    """Arguments of `plan.plan`: each worker makes the plan again."""
    listed: str
    """What the source is to be; see `_listed`."""
    staging: str
    """Folder of what is staged."""
    run: str
    """Unique name of this run."""

    @classmethod
    def of(cls, made: DatasetPlan, asked: Mapping[str, Any], cloud: Cloud) -> Task:
        """Return the task of making the shards of a plan, which was made with the arguments `asked`."""
        staging = dataset(made.name, made.version) + FOLDER
        return cls(cloud.config, cloud.endpoints, asked, _listed(made), staging, uuid4().hex)


@dataclass(frozen=True)
class Assigned(Shard):
    """A shard under the identity that it has where it was planned.

    Times of files go into an identity; a copy of the source on another machine has its own.
    """

    identity: str = ""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error on its way from a worker."""

    kind: str
    message: str
    hint: str
    host: str
    bad: tuple[BadRecord, ...] = ()

    def error(self) -> TpuctlError:
        """Return it as it was; it names the worker unless it is about records."""
        if self.bad:
            return BadRecordsError(self.bad)
        made = _KINDS.get(self.kind, errors.StateError)
        return made(f"On the worker {self.host}: {self.message}", hint=self.hint, host=self.host)


class Failures:
    """What went wrong on the workers of one run, in the bucket: no runner hands errors back as they were."""

    def __init__(self, bucket: Bucket, task: Task) -> None:
        self._bucket = bucket
        self._prefix = f"{task.staging}{task.run}/"

    def add(self, identity: str, error: TpuctlError) -> None:
        """Tell of one."""
        bad = tuple(error.bad) if isinstance(error, BadRecordsError) else ()
        told = Failure(error.kind, error.message, error.hint, socket.gethostname(), bad)
        self._bucket.upload(f"{self._prefix}{identity}.json", [msgspec.json.encode(told)], "application/json")

    def any(self) -> bool:
        """Tell whether there is one."""
        return bool(self._bucket.objects(self._prefix, most=1))

    def all(self) -> list[TpuctlError]:
        """Return all of them, and remove them."""
        found = []
        for one in self._bucket.objects(self._prefix):
            found.append(msgspec.json.decode(self._bucket.read(one.name), type=Failure).error())
            self._bucket.remove(one)
        return found


class Worker:
    """Makes and stages shards, one after another; opened where it works, and closed there."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cloud = Cloud(task.config, task.endpoints)
        self._failures = Failures(self._cloud.data_bucket, task)

    def make(self, index: int, identity: str) -> None:
        """Stage the shard with this number in the plan, unless another has failed; a failure is written down.

        Only what is no TpuctlError is raised, and an error that cannot be written down.
        """
        if self._failures.any():
            return
        try:
            self._stage(index, identity)
        except TpuctlError as error:
            self._failures.add(identity, error)

    def close(self) -> None:
        """Release files and connections."""
        if "_plan" in self.__dict__:
            self._plan.source.close()
        self._cloud.close()

    def _stage(self, index: int, identity: str) -> None:
        skip_bad: bool = self._task.asked["skip_bad"]
        one = self._shards[index]
        shard = Assigned(
            one.file, one.split, one.source, one.members, one.start, one.stop, one.plan, identity
        )
        if self._staging.kept(shard, skip_bad=skip_bad) is None:
            conversion = Conversion(self._plan, lambda done: None, skip_bad=skip_bad)
            self._staging.put(shard, lambda: conversion.stream(shard), None)

    @cached_property
    def _plan(self) -> DatasetPlan:
        made = plan(**self._task.asked)
        if _listed(made) != self._task.listed:
            raise UsageError(
                f"'{self._task.asked['source']}' is not the source that was listed at the start.",
                hint="Every worker reads it from this path: have the same files there, and the same tpuctl.",
            )
        return made

    @cached_property
    def _shards(self) -> list[Shard]:
        return list(self._plan.shards())

    @cached_property
    def _staging(self) -> Staging:
        return Staging(self._cloud.data_bucket, self._plan.name, self._plan.version)


def _listed(made: DatasetPlan) -> str:
    """What two plans have in common that make the same shards."""
    return " ".join((made.identity, made.source.fingerprint, *(shard.file for shard in made.shards())))
