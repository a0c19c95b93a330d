"""Plans a source and converts it to shards that are thrown away; prints the seconds and the checksums.

PYTHONPATH=CHECKOUT python benchmarks/datasets/convert.py SOURCE [SHARDS]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Convert, several shards at once as an upload does; imports are left out of the seconds."""
    from tpuctl.data.plan import plan  # noqa: PLC0415  that of the checkout in PYTHONPATH
    from tpuctl.flows.datasets.conversion import Conversion  # noqa: PLC0415

    source, shards = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    began, cpu = time.perf_counter(), time.process_time()
    planned = plan(source, name="bench", shards=shards)
    listed = time.process_time() - cpu
    conversion = Conversion(planned, lambda progress: None, skip_bad=False)
    results = conversion.run(lambda shard: conversion.stream(shard).drain(), list(planned.shards()))
    planned.source.close()
    figures = {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "plan_cpu": listed,
        "records": planned.records,
        "checksums": [result.entry.crc32c for result in results],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
