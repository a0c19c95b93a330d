"""Cloud Storage in a process of its own, to be killed or starved: ROOT [LARGEST_FILE]."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer


async def serve(root: Path) -> None:
    runner = web.AppRunner(GcsServer(root, FaultRegistry()).application(), **RUNNER_OPTIONS)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    asyncio.run(serve(Path(sys.argv[1])))
