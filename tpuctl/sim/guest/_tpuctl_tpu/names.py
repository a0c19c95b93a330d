"""Translates device names: users write TPU core i, which is the host's logical CPU i + 1."""

from __future__ import annotations

import re
from dataclasses import dataclass

LOCAL_JOB = "localhost"
WORKER_JOB = "worker"
_HOST = "/job:localhost/replica:0/task:0/device:CPU:"
_SYSTEM = re.compile(r"(^|/)(device:)?TPU_SYSTEM(:\d+)?$", re.IGNORECASE)
_CORE = re.compile(r"(^|/)(device:)?TPU:(?P<index>\d+)$", re.IGNORECASE)
_CPU = re.compile(r"(^|/)(device:)?CPU:(?P<index>\d+)$", re.IGNORECASE)
_TASK = re.compile(r"/task:(\d+)")
_WORKER = re.compile(r"/job:(worker|tpu_worker)(?=/|$)")


@dataclass(frozen=True)
class DeviceNames:
    """Translates names both ways for a slice of `cores` cores, `cores_per_host` on each host."""

    cores: int
    cores_per_host: int

    def host_device(self, core: int) -> str:
        """Return the logical CPU that stands for a core."""
        return f"{_HOST}{core + 1}"

    def to_host(self, name: str) -> str:
        """Return where an operation that was asked to be on `name` runs.

        The name of a core that the slice does not have is left as it is, for TensorFlow to judge.
        """
        if _SYSTEM.search(name):
            return f"{_HOST}0"
        core = self.core(name)
        if core is not None:
            return self.host_device(core) if core < self.cores else name
        if _WORKER.search(name):
            return f"{_HOST}0" if _CPU.search(name) else ""
        return name

    def core(self, name: str) -> int | None:
        """Return which core of the slice `name` means, there or not; None for other devices."""
        match, task = _CORE.search(name), _TASK.search(name)
        if match is None:
            return None
        return int(match["index"]) + (int(task[1]) * self.cores_per_host if task else 0)

    def to_tpu(self, name: str, job: str) -> str:
        """Return the name that a user expects for a device of TensorFlow's."""
        match = _CPU.search(name)
        if match is None or match["index"] == "0" or int(match["index"]) > self.cores:
            return name
        return self.full(int(match["index"]) - 1, job)

    def full(self, core: int, job: str) -> str:
        """Return a core's full name; a local TPU is of one task, a named node has a task for each host."""
        task, index = (0, core) if job == LOCAL_JOB else divmod(core, self.cores_per_host)
        return f"/job:{job}/replica:0/task:{task}/device:TPU:{index}"

    def listed(self, core: int, job: str) -> str:
        """Return a core's name in lists of devices, where local devices have no job."""
        return f"/device:TPU:{core}" if job == LOCAL_JOB else self.full(core, job)

    def is_core(self, name: str) -> bool:
        """Whether a device of TensorFlow's stands for a core, and is not the host's own CPU."""
        match = _CPU.search(name)
        return match is not None and int(match["index"]) > 0
