"""Programs on a simulated host use gs:// as they do on a TPU VM: unmodified, and without an argument."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import User

PROGRAMS = Path(__file__).parent / "programs"
EXPECTED: dict[str, dict[str, Any]] = {
    "tensorflow_files.py": {
        "big": [True, True, 3 << 20],
        "appended": "one two three",
        "overwritten": "new",
        "missing": "NotFoundError",
        "missing bucket": "NotFoundError",
        "listed": ["a/", "empty/", "other.txt"],
        "empty": [True, []],
        "globbed": ["/tree/a/1.txt", "/tree/a/2.txt"],
        "walked": 4,
        "refused copy": "AlreadyExistsError",
        "copied": "other.txt",
        "renamed": [False, False],
        "moved": ["a/b/3.txt", "other.txt"],
        "left": ["empty/"],
        "records": 1000,
        "restored": [3, 3.0],
        "checkpoints": [
            "checkpoint",
            *(f"ckpt-{number}.{end}" for number in (2, 3) for end in ("data-00000-of-00001", "index")),
        ],
        "summaries": [1.0, 0.5, 0.33, 0.25],
        "after rmtree": False,
    },
    "storage_client_files.py": {
        "project": "sim-project",
        "whole": True,
        "part": True,
        "lines": ["one", "two"],
        "listed": ["client/a/small", "client/big", "client/lines"],
        "folders": ["client/a/"],
        "refused": 412,
        "missing": 404,
    },
    "gcsfs_files.py": {
        "whole": True,
        "part": True,
        "listed": ["/a", "/big"],
        "globbed": ["/a/small"],
        "missing": False,
        "renamed": "small",
        "left": [],
    },
    "tensorstore_arrays.py": {
        "array": [8, 7],
        "kept": "1",
        "written": "2",
        "listed": ["a", "array/c/0/0", "array/zarr.json"],
        "left": 0,
    },
}


def test_over_ssh(simulator: RunningSimulator, tmp_path: Path) -> None:
    endpoints, user = simulator.simulator.endpoints, User(tmp_path)
    node = user.create(endpoints["tpu_grpc"], runtime="tpu-vm-tf-2.17.0-pjrt")
    address, hosts = node.network_endpoints[0].ip_address, Path(endpoints["hosts_file"])
    user.install(hosts, address, "google-cloud-storage", "gcsfs", "tensorstore")
    reports = {
        name: json.loads(user.run_script(hosts, address, (PROGRAMS / name).read_text())) for name in EXPECTED
    }
    assert reports == EXPECTED


def test_as_a_job(tpuctl: Callable[..., CommandResult], node: str) -> None:
    name = "storage_client_files.py"
    assert tpuctl("submit", str(PROGRAMS / name)).code == 0
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.out + followed.err
    assert json.loads(followed.out.splitlines()[-1]) == EXPECTED[name]
