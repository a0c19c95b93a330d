"""Estimates an upload by Dataflow, and writes its command; needs neither Beam nor Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tpuctl import __version__
from tpuctl.data.plan import DatasetPlan
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest

WHEEL = f"tpuctl-{__version__}-py3-none-any.whl"
"""What workers install, a file of this machine: no package index has tpuctl. Beam itself brings pyarrow."""
MACHINE_TYPE = "n1-standard-2"
RATE = 20_000_000
"""Bytes of shards that one vCPU makes in a second: assumed, and low for pictures."""
_STARTUP = 180
"""Seconds that a worker is billed before it begins: assumed."""
_GOAL = 1800
"""Seconds of work for which workers are added."""
_MOST_WORKERS = 100
_CPUS = re.compile(r"[a-z][a-z0-9-]*-(\d{1,3})")
_TABLES = frozenset({"csv", "jsonl", "parquet", "numpy", "idx", "tfrecord", "tfds"})
"""Kinds of sources that every process on a worker reads once, to find the records."""


@dataclass(frozen=True)
class Settings:
    """Where and on what the workers run; None and 0 are to be chosen."""

    project: str
    region: str
    bucket: str
    """Of datasets: temporary files of Dataflow are below `dataflow/` there."""
    machine_type: str = MACHINE_TYPE
    workers: int | None = None
    price: float | None = None
    """US dollars for an hour of a vCPU with its memory."""
    rate: int = RATE


@dataclass(frozen=True)
class Estimate:
    """What an upload by Dataflow takes; hours and cost stand on assumptions that are named."""

    workers: int
    vcpus: int
    """Of one worker."""
    seconds: int
    """From the first worker's start to the last one's end."""
    vcpu_hours: float
    bytes_read: int
    bytes_written: int
    cost: float | None
    """In US dollars; None where no price is given."""
    assumptions: tuple[str, ...]


def estimate(plan: DatasetPlan, settings: Settings) -> Estimate:
    """Return what the upload takes; raises UsageError for a machine type whose vCPUs are not in its name."""
    match = _CPUS.fullmatch(settings.machine_type)
    if not match or not int(match[1]):
        raise UsageError(
            f"The machine type '{settings.machine_type}' does not name its vCPUs.",
            hint="Give one such as n1-standard-4.",
        )
    vcpus, shards = int(match[1]), sum(split.sharding.count for split in plan.splits)
    work = plan.bytes / settings.rate
    wanted = ceil(work / (_GOAL * vcpus))
    workers = settings.workers or max(1, min(wanted, ceil(shards / vcpus), _MOST_WORKERS))
    rounds = ceil(shards / (workers * vcpus))
    seconds = _STARTUP + ceil(work * rounds / shards)
    hours = seconds * workers * vcpus / 3600
    processes = workers * vcpus if plan.source.kind in _TABLES else 1
    return Estimate(
        workers,
        vcpus,
        seconds,
        hours,
        bytes_read=plan.bytes * processes,
        bytes_written=plan.bytes,
        cost=None if settings.price is None else hours * settings.price,
        assumptions=_assumptions(settings, processes),
    )


def require_bucket(request: UploadRequest, settings: Settings) -> None:
    """Raise UsageError for a source that workers cannot reach."""
    if not request.is_in_bucket:
        raise UsageError(
            f"Workers of Dataflow do not reach '{request.source}', which is on this machine.",
            hint=f"Copy it: gcloud storage cp -r {request.source} gs://{settings.bucket}/raw/",
        )


def beam_options(request: UploadRequest, settings: Settings, workers: int) -> list[str]:
    """Return the options of Beam for the upload."""
    folder = f"gs://{settings.bucket}/dataflow"
    job = re.sub(r"[^a-z0-9]+", "-", f"tpuctl-{request.ref.name}-{request.ref.version}".lower()).strip("-")
    return [
        "--runner=DataflowRunner",
        f"--project={settings.project}",
        f"--region={settings.region}",
        f"--temp_location={folder}/temp",
        f"--staging_location={folder}/staging",
        f"--job_name={job[:60].rstrip('-')}",
        f"--machine_type={settings.machine_type}",
        f"--num_workers={workers}",
        f"--max_num_workers={workers}",
        f"--extra_package={WHEEL}",
    ]


def command(
    request: UploadRequest, own_options: Sequence[str], settings: Settings, workers: int
) -> list[str]:
    """Return the words of the whole command."""
    upload = ["tpuctl", "data", "upload", request.ref.name, request.source, *own_options]
    return [*upload, "--runner", "beam", "--", *beam_options(request, settings, workers)]


def _assumptions(settings: Settings, processes: int) -> tuple[str, ...]:
    given = "as given" if settings.rate != RATE else "assumed: measure it with a part of the source"
    reads = f"each of {processes} processes reads the source once" if processes > 1 else "read once"
    return (
        f"a vCPU makes {settings.rate / 1e6:g} MB of shards in a second ({given})",
        f"a worker is billed {_STARTUP} s before it begins (assumed)",
        f"the source is in the region of the workers, and {reads}",
    )
