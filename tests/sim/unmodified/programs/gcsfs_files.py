"""fsspec's gs:// as programs use it on a TPU VM, without an argument; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys

import fsspec

ROOT = "sim-project-tpuctl/gcsfs"
files = fsspec.filesystem("gs")
data = os.urandom(6 << 20)
with fsspec.open(f"gs://{ROOT}/big", "wb", block_size=1 << 20) as file:
    file.write(data)
files.pipe(f"{ROOT}/a/small", b"small")
report = {
    "whole": files.cat(f"{ROOT}/big") == data,
    "part": files.cat(f"{ROOT}/big", start=10, end=20) == data[10:20],
    "listed": [path.removeprefix(ROOT) for path in files.ls(ROOT, detail=False)],
    "globbed": [path.removeprefix(ROOT) for path in files.glob(f"{ROOT}/**/s*")],
    "missing": files.exists(f"{ROOT}/nothing"),
}
files.mv(f"{ROOT}/a/small", f"{ROOT}/renamed")
report["renamed"] = files.cat(f"{ROOT}/renamed").decode()
files.rm(ROOT, recursive=True)
files.invalidate_cache()
report["left"] = files.find(ROOT)
json.dump(report, sys.stdout)
