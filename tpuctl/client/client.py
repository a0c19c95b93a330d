"""The client: what the command line does, from Python."""

from __future__ import annotations

import logging

from tpuctl import printable
from tpuctl.client.context import Context, Warn
from tpuctl.client.datasets.client import DatasetClient
from tpuctl.client.nodes.client import NodeClient
from tpuctl.client.runs.client import RunClient
from tpuctl.config import load

LOGGER = logging.getLogger("tpuctl")
LOGGER.addHandler(logging.NullHandler())  # or Python would print warnings of a program without handlers


class Client(NodeClient, DatasetClient, RunClient):
    """TPUs, datasets and runs of one project, or of the simulator.

        with tpuctl.Client() as client:
            node = client.up("v3-8")
            run = client.submit("train.py", ["--epochs", "30"])
            for line in run.logs(follow=True):
                print(line.worker, line.text)
            run.pull("result")
            node.down()

    Configured as the command line is: an argument here is an option there, then come variables `TPUCTL_*`,
    `tpuctl.toml`, and gcloud's own configuration. Nothing is connected before it is needed, and nothing is
    printed. Raises `tpuctl.errors.ConfigError` for configuration that cannot be read.

    Threads may share a client. Warnings, such as of an object in the bucket that is no record, go to `warn`,
    or without it to `logging.getLogger("tpuctl")`. Calls that take long take a `progress` callback, which
    gets `Progress` records from any of their threads, one at a time, and a `Stop` by which another thread
    ends them.
    In asyncio each call belongs in a thread:

        end = await asyncio.to_thread(run.wait)
    """

    def __init__(
        self, *, target: str | None = None, project: str | None = None, zone: str | None = None,
        bucket: str | None = None, iap: bool | None = None, host_keys: str | None = None,
        cross_region: bool | None = None, warn: Warn | None = None,
    ) -> None:  # fmt: skip
        flags = {"target": target, "project": project, "zone": zone, "bucket": bucket}
        for name, value in (("iap", iap), ("cross_region", cross_region)):
            flags[name] = None if value is None else ("yes" if value else "no")
        flags["host_keys"] = host_keys
        self._context = Context(load(flags), lambda text: (warn or LOGGER.warning)(printable.block(text)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tpuctl.Client of {self.target}>"

    @property
    def target(self) -> str:
        """`gcp` or `sim`."""
        return self._context.config.target

    def close(self) -> None:
        """Close the connections; every later call raises StateError. Runs and TPUs stay as they are."""
        self._context.close()
