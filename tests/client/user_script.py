"""A user's program, as mypy --strict sees it; it is type-checked, and never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import assert_type

import tpuctl
from tpuctl import Client, NodeInfo, NodeOptions, Progress, Stop, SubmitOptions
from tpuctl.errors import StockoutError, TpuctlError


def show(progress: Progress) -> None:
    """Take what a call reports."""
    assert_type(progress.text, str)
    assert_type(progress.done, int | None)
    assert_type(progress.total, int | None)


def nodes(client: Client, stop: Stop) -> tpuctl.Node:
    """Use all that is about TPUs."""
    options: NodeOptions = {
        "spot": True,
        "ttl": timedelta(hours=8),
        "zones": ["any"],
        "labels": {"team": "a"},
    }
    plan = client.plan_up("v3-8", **options)
    assert_type(plan, tpuctl.NodePlan)
    assert_type(plan.price_per_hour, tpuctl.Cost)
    assert_type(plan.create(progress=show), tpuctl.Node)
    node = client.up("v3-8", name="n1", progress=show, stop=stop, spot=True)
    assert_type(node, tpuctl.Node)
    assert_type(node.info, NodeInfo)
    assert_type(node.info.created, datetime | None)
    assert_type(node.info.price_per_hour, tpuctl.Cost)
    assert_type(client.nodes(all_users=True), tpuctl.Listing[NodeInfo])
    assert_type([info.name for info in client.nodes()], list[str])
    result = client.exec("n1", ["uptime"], workers=[0], timeout=60)
    assert_type(result.workers, tuple[tpuctl.WorkerResult, ...])
    assert_type(result.exit_code, int)
    assert_type(result.workers[0].error, TpuctlError | None)
    assert_type(client.cp("data", "n1:"), tuple[tpuctl.CopyResult, ...])
    assert_type(client.down("n1"), tuple[str, ...])
    assert_type(client.plan_down(all=True).names, tuple[str, ...])
    assert_type(node.extend(timedelta(hours=1)), datetime)
    return node


def datasets(client: Client) -> tpuctl.Dataset:
    """Use all that is about datasets."""
    dataset = client.upload("digits", Path("digits"), splits={"train": 0.8, "test": 0.2}, resize=(32, 32))
    assert_type(dataset.info, tpuctl.DatasetInfo)
    assert_type(dataset.info.splits, tuple[tpuctl.SplitInfo, ...])
    (example,) = dataset.head(1)
    assert_type(example.values, Mapping[str, tuple[bytes | int | float, ...]])
    assert_type(dataset.pull("here"), tpuctl.DatasetCopy)
    assert_type(client.datasets(), tpuctl.Listing[tpuctl.DatasetInfo])
    return client.dataset("digits/1.0.0")


def runs(client: Client) -> float:
    """Use all that is about runs."""
    options: SubmitOptions = {"environment": {"A": "1"}, "restarts": "unlimited", "busy": "queue"}
    run = client.submit("train.py", ["--epochs", "3"], **options)
    assert_type(run, tpuctl.Run)
    assert_type(run.state, str)
    lines = run.logs(follow=True, workers=[0], tail=10)
    assert_type(lines, Iterator[tpuctl.LogLine])
    for line in lines:
        assert_type(line.worker, int)
        assert_type(line.time, datetime | None)
    end = run.wait(timeout=timedelta(hours=6), check=True)
    assert_type(end, tpuctl.RunEnd)
    assert_type(end.exit_code, int | None)
    assert_type(run.attempts, tpuctl.Listing[tpuctl.AttemptInfo])
    assert_type(run.cost, tpuctl.Cost)
    assert_type(run.pull(only=["logs"], latest=True), tpuctl.RunCopy)
    assert_type(run.cancel(grace=30), tpuctl.RunEnd)
    assert_type(client.runs(states=["failed"], since=timedelta(days=7)), tpuctl.Listing[tpuctl.RunInfo])
    for event in client.watch(run.name, once=True):
        assert_type(event, tpuctl.WatchEvent)
    assert_type(client.cost(by="user").groups, tuple[tpuctl.CostGroup, ...])
    metrics = run.metrics()
    assert_type(metrics.curves, Mapping[str, tpuctl.Curve])
    return metrics.curves["loss"].last.value


def main() -> None:
    """Use the client as a context manager, and its errors."""
    with Client(target="sim", project="p", zone="europe-west4-a", bucket="b", iap=False) as client:
        assert_type(client, Client)
        try:
            nodes(client, Stop())
        except StockoutError as error:
            assert_type(error.hint, str)
        datasets(client)
        runs(client)
