"""Converts shards on a Beam worker, which opens the source and the bucket itself.

datasets/NAME/VERSION/staging/RUN/IDENTITY.json     why a shard could not be converted, for the machine that
                                                    started the pipeline
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from tpuctl import errors
from tpuctl.bucket_objects import BadObjectError, DecodeError, decode
from tpuctl.cloud.endpoints import Cloud, Endpoints
from tpuctl.config import Config
from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.output.shards import Shard
from tpuctl.data.plan import DatasetPlan
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.flows.datasets.conversion import Conversion
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.datasets.upload import FOLDER, Staging

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

_KINDS: dict[str, type[TpuctlError]] = {
    error.kind: error
    for error in (
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
    """All that a worker is given; it is pickled."""

    config: Config
    endpoints: Endpoints
    request: UploadRequest
    """Each worker makes the plan of it again."""
    digest: str
    """What the worker's plan has to have in common with ours; see `_digest`."""
    staging: str
    """Folder of the staged shards."""
    run: str
    """Unique name of this run."""

    @classmethod
    def of(cls, plan: DatasetPlan, request: UploadRequest, cloud: Cloud) -> Task:
        """Return the task of converting the shards of a plan, which was made of `request`."""
        tokens = plan.vocabulary.tokens if plan.vocabulary else None
        staging = plan.ref.folder + FOLDER
        fixed = request.fixed(tokens, plan.source.headers)
        return cls(cloud.config, cloud.endpoints, fixed, _digest(plan), staging, uuid4().hex)


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
        """Return the error again; the message names the worker unless it is about records."""
        if self.bad:
            return BadRecordsError(self.bad)
        kind = _KINDS.get(self.kind, errors.StateError)
        return kind(f"On the worker {self.host}: {self.message}", hint=self.hint, host=self.host)


class Failures:
    """The errors of the workers of one run, kept in the bucket: no runner returns errors as they were."""

    def __init__(self, bucket: Bucket, task: Task) -> None:
        self._bucket = bucket
        self._prefix = f"{task.staging}{task.run}/"

    def add(self, identity: str, error: TpuctlError) -> None:
        """Write down why the shard with this identity could not be converted."""
        bad = tuple(error.bad) if isinstance(error, BadRecordsError) else ()
        failure = Failure(error.kind, error.message, error.hint, socket.gethostname(), bad)
        data = msgspec.json.encode(failure)
        self._bucket.upload(f"{self._prefix}{identity}.json", [data], "application/json")

    def any(self) -> bool:
        """Return whether there is one."""
        return bool(self._bucket.objects(self._prefix, most=1))

    def take_all(self) -> list[TpuctlError]:
        """Return all of them, and remove them from the bucket."""
        failures: list[TpuctlError] = []
        for listed in self._bucket.objects(self._prefix):
            failures.append(self._read(listed.name))
            self._bucket.remove(listed)
        return failures

    def _read(self, name: str) -> TpuctlError:
        try:
            return decode(self._bucket.read(name), Failure).error()
        except DecodeError as error:
            return BadObjectError(name, f"does not say why a shard could not be converted: {error}")


class Worker:
    """Converts and stages shards, from any thread; opened and closed on the machine where it works."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cloud = Cloud(task.config, task.endpoints)
        self._failures = Failures(self._cloud.data_bucket, task)
        self._planning = Lock()

    def stage(self, index: int, identity: str) -> None:
        """Stage the shard with this number in the plan, unless another has failed; a failure is written down.

        Raises only what is no TpuctlError, and an error that cannot be written down.
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

    def __del__(self) -> None:
        """Close it when the last of those that share it in their process is gone: nobody else knows."""
        self.close()

    def _stage(self, index: int, identity: str) -> None:
        skip_bad = self._task.request.skip_bad
        with self._planning:
            planned = self._shards[index]
        shard = Assigned(
            planned.file,
            planned.split,
            planned.source,
            planned.members,
            planned.start,
            planned.stop,
            planned.plan,
            planned.file_format,
            identity,
        )
        if self._staging.find(shard, skip_bad=skip_bad) is None:
            conversion = Conversion(self._plan, lambda progress: None, skip_bad=skip_bad)
            self._staging.put(shard, lambda: conversion.stream(shard), None)

    @cached_property
    def _plan(self) -> DatasetPlan:
        plan = make_plan(self._task.request, open_bucket=self._cloud.source_objects)
        if _digest(plan) != self._task.digest:
            raise UsageError(
                f"'{self._task.request.source}' is not the source that was listed at the start.",
                hint="Every worker reads it from this path: have the same files there, tpuctl and Pillow.",
            )
        return plan

    @cached_property
    def _shards(self) -> list[Shard]:
        return list(self._plan.shards())

    @cached_property
    def _staging(self) -> Staging:
        return Staging(self._cloud.data_bucket, self._plan.ref, self._plan.file_format)


def _digest(plan: DatasetPlan) -> str:
    """What two plans have in common that make the same shards."""
    return " ".join((plan.identity, plan.source.fingerprint, *(shard.file for shard in plan.shards())))
