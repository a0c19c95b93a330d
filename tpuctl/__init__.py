"""tpuctl: train on Google Cloud TPUs from a laptop, or rehearse it on a simulator.

Public are the names in `__all__`, and what `tpuctl.errors` and `tpuctl.testing` list: a change of these is a
line in the CHANGELOG. Every other module is private, whatever its name: the next release may change it. Of a
public class, names that begin with an underscore are private.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from tpuctl import errors, testing
    from tpuctl.client.client import Client
    from tpuctl.client.context import Span, Stop
    from tpuctl.client.datasets.client import UploadOptions
    from tpuctl.client.datasets.dataset import Dataset
    from tpuctl.client.datasets.records import DatasetInfo, SplitInfo
    from tpuctl.client.nodes.creation import DownPlan, NodeOptions, NodePlan
    from tpuctl.client.nodes.node import Node, OutputCallback
    from tpuctl.client.nodes.records import CommandResult, NodeInfo, RequestInfo, WorkerResult
    from tpuctl.client.records import Progress, ProgressCallback
    from tpuctl.client.runs.client import SubmitOptions
    from tpuctl.client.runs.plans import RunPlan
    from tpuctl.client.runs.records import (
        AttemptInfo,
        CostGroup,
        CostReport,
        LogCallback,
        LogLine,
        RunCopy,
        RunEnd,
        RunResult,
    )
    from tpuctl.client.runs.run import Run
    from tpuctl.display import Cost, Fact, Record
    from tpuctl.display.listing import Listing, Picture
    from tpuctl.display.markup import Curve, Metrics, Point
    from tpuctl.flows.datasets.head import Example
    from tpuctl.flows.datasets.pull import DatasetCopy
    from tpuctl.flows.remote.copy import CopyResult
    from tpuctl.flows.runs.recovery.lease import WatchEvent
    from tpuctl.flows.runs.summaries import RunInfo

_PLACES = {
    "client.client": ("Client",),
    "client.context": ("Span", "Stop"),
    "client.datasets.client": ("UploadOptions",),
    "client.datasets.dataset": ("Dataset",),
    "client.datasets.records": ("DatasetInfo", "SplitInfo"),
    "client.nodes.creation": ("DownPlan", "NodeOptions", "NodePlan"),
    "client.nodes.node": ("Node", "OutputCallback"),
    "client.nodes.records": ("CommandResult", "NodeInfo", "RequestInfo", "WorkerResult"),
    "client.records": ("Progress", "ProgressCallback"),
    "client.runs.client": ("SubmitOptions",),
    "client.runs.plans": ("RunPlan",),
    "client.runs.records": (
        "AttemptInfo", "CostGroup", "CostReport", "LogCallback", "LogLine", "RunCopy", "RunEnd",
        "RunResult",
    ),
    "client.runs.run": ("Run",),
    "display": ("Cost", "Fact", "Record"),
    "display.listing": ("Listing", "Picture"),
    "display.markup": ("Curve", "Metrics", "Point"),
    "flows.datasets.head": ("Example",),
    "flows.datasets.pull": ("DatasetCopy",),
    "flows.remote.copy": ("CopyResult",),
    "flows.runs.recovery.lease": ("WatchEvent",),
    "flows.runs.summaries": ("RunInfo",),
}  # fmt: skip
"""Module -> the public names that it defines: imported when one of them is used."""

__all__ = [
    "AttemptInfo", "Client", "CommandResult", "CopyResult", "Cost", "CostGroup", "CostReport", "Curve",
    "Dataset", "DatasetCopy", "DatasetInfo", "DownPlan", "Example", "Fact", "Listing", "LogCallback",
    "LogLine", "Metrics", "Node", "NodeInfo", "NodeOptions", "NodePlan", "OutputCallback", "Picture",
    "Point", "Progress", "ProgressCallback", "Record", "RequestInfo", "Run", "RunCopy", "RunEnd", "RunInfo",
    "RunPlan", "RunResult", "Span", "SplitInfo", "Stop", "SubmitOptions", "UploadOptions", "WatchEvent",
    "WorkerResult", "__version__", "errors", "testing",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    from importlib import import_module  # noqa: PLC0415  not at each start

    if name in ("errors", "testing"):
        return import_module(f"tpuctl.{name}")
    for place, names in _PLACES.items():
        if name in names:
            value: object = getattr(import_module(f"tpuctl.{place}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'tpuctl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: object) -> None:
    """Add the magics `%%tpu` and `%tpu` to IPython: it calls this for `%load_ext tpuctl`."""
    from tpuctl.notebook import load  # noqa: PLC0415  as above

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Remove them: IPython calls this for `%unload_ext tpuctl`."""
    from tpuctl.notebook import unload  # noqa: PLC0415  as above

    unload(shell)
