"""The names of objects in the bucket, which other machines and versions read, as docs/ has them."""

from __future__ import annotations

import pytest

from tpuctl.bucket_layout import (
    ATTEMPT_FOLDER,
    LOG_CHUNK,
    RUN_ON_NODE,
    NodePaths,
    RunPaths,
    bundle,
    chunk_number,
    gs,
    split_gs,
)
from tpuctl.errors import UsageError
from tpuctl.host.worker.records import ORDERED_LOG

PATHS = RunPaths("r1")
NODE = NodePaths("example.com:p", "us-central2-b", "n1", "42")


def test_a_runs_objects_are_below_its_folder() -> None:
    names = [
        PATHS.folder, PATHS.record, PATHS.verdict, PATHS.notes, PATHS.stop, PATHS.results, PATHS.checkpoints,
        PATHS.tensorboard, PATHS.outputs, PATHS.attempts, PATHS.attempt(2), PATHS.attempt_folder(2),
        PATHS.attempt_verdict(2), PATHS.launch(2), PATHS.lease(2), PATHS.worker(2, 3), PATHS.status(2, 3),
        PATHS.environment(2, 3), PATHS.logs(2, 3), PATHS.ordered_logs(2), PATHS.log(2, 3, 4),
    ]  # fmt: skip
    assert [name.removeprefix("runs/r1/") for name in names] == [
        "", "run.json", "verdict.json", "notes.json", "stop.json", "results.json", "checkpoints/",
        "tensorboard/", "outputs/", "attempts/", "attempts/2/attempt.json", "attempts/2/",
        "attempts/2/verdict.json", "attempts/2/launch.json", "attempts/2/lease.json", "attempts/2/workers/3/",
        "attempts/2/workers/3/status.json", "attempts/2/workers/3/environment.json",
        "attempts/2/workers/3/log/", "attempts/2/log/", "attempts/2/workers/3/log/000004.log",
    ]  # fmt: skip


def test_a_nodes_objects_are_below_its_folder() -> None:
    folder = "nodes/example.com_p.us-central2-b.n1.42/"
    names = [NODE.folder, NODE.runs, NODE.keeper, NODE.run("r1", 2)]
    assert names == [folder, f"{folder}runs/", f"{folder}keeper/", f"{folder}runs/r1/2.json"]


@pytest.mark.parametrize(
    ("folder", "node"),
    [
        ("example.com_p.us-central2-b.n1.42", NodePaths("example.com_p", "us-central2-b", "n1", "42")),
        ("p.z.n1.42", NodePaths("p", "z", "n1", "42")),
        ("z.n1.42", None), (".z.n1.42", None), ("p..n1.42", None), ("p.z..42", None), ("p.z.n1.", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_nodes_folder_names_it(folder: str, node: NodePaths | None) -> None:
    assert NodePaths.parse(folder) == node


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("gs://bucket", ("bucket", "")), ("gs://bucket/", ("bucket", "")), ("gs://abc/a/b", ("abc", "a/b")),
        (f"gs://{'a' * 222}/x", ("a" * 222, "x")), ("gs://b_1.x-2/gs://y", ("b_1.x-2", "gs://y")),
    ],
)  # fmt: skip
def test_a_uri_has_a_bucket_and_a_name(uri: str, parts: tuple[str, str]) -> None:
    assert split_gs(uri) == parts
    assert split_gs(gs(*parts)) == parts


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "bucket/x",
        "gs://",
        "gs:///x",
        "gs://ab",
        "gs://Bucket",
        "gs://-ab",
        "gs://ab-",
        f"gs://{'a' * 223}",
    ],
)
def test_what_names_no_bucket_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="names no bucket") as caught:
        split_gs(uri)
    assert caught.value.facts == {"source": uri}


def test_code_is_stored_by_its_hash() -> None:
    assert bundle("0a1b") == "bundles/0a1b.tar.gz"


def test_a_piece_of_a_log_has_its_number() -> None:
    assert [chunk_number(PATHS.log(2, 3, number)) for number in (1, 10, 999_999)] == [1, 10, 999_999]


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (ATTEMPT_FOLDER, ["1", "9999"], ["0", "01", "10000", "", "x"]),
        (LOG_CHUNK, ["000001.log", "100000.log"], ["000000.log", "1.log", "0000001.log", "000001xlog"]),
        (
            ORDERED_LOG,
            ["20260131T235959-0003-000004.log"],
            ["20260131T235959-0003-000000.log", "20260131T235959-3-000004.log", "000004.log"],
        ),
        (RUN_ON_NODE, ["r1/2.json", f"{'a' * 63}/1.json"], ["r1/0.json", "R1/2.json", f"{'a' * 64}/1.json"]),
    ],
)
def test_other_names_are_not_ours(pattern: object, names: list[str], others: list[str]) -> None:
    assert [name for name in (*names, *others) if pattern.fullmatch(name)] == names  # type: ignore[attr-defined]
