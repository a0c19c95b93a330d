"""One bad manifest in the bucket is one warning line: the other datasets are listed, read and trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import LARGEST

Command = Callable[..., CommandResult]
JOB = """\
# /// script
# dependencies = []
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "{dataset}"
# ///
print("hello")
"""


@pytest.fixture
def manifest(tpuctl: Command, bucket: Bucket) -> dict[str, object]:
    """The manifest of the good dataset, notes/1.0.0."""
    Path("notes.jsonl").write_text('{"text": "a", "stars": 1}\n' * 4)
    assert tpuctl("data", "upload", "notes", "notes.jsonl").code == 0
    content: dict[str, object] = json.loads(bucket.read("datasets/notes/1.0.0/manifest.json"))
    return content


def of(manifest: dict[str, object], name: str, version: str, **changes: object) -> bytes:
    return json.dumps(manifest | {"name": name, "version": version} | changes).encode()


def shard(manifest: dict[str, object], **changes: object) -> dict[str, object]:
    """The manifest's split with other fields of its shard."""
    split = json.loads(json.dumps(manifest["splits"]))
    split["train"]["shards"][0].update(changes)
    return split


LEVELS = json.loads("[" * 90 + "]" * 90)
CASES: dict[str, Callable[[dict[str, object]], bytes]] = {
    "empty JSON object": lambda good: b"{}",
    "no byte": lambda good: b"",
    "no JSON": lambda good: b"\x1f\x8b\x08",
    "deep": lambda good: b'{"schema": 2, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep in a feature": lambda good: of(
        good, "notes", "2.0.0", features={"x": {"kind": "other", "content": {"a": LEVELS}}}
    ),
    "too large": lambda good: of(good, "notes", "2.0.0") + b" " * LARGEST,
    "another dataset's": lambda good: of(good, "others", "2.0.0"),
    "another version's": lambda good: of(good, "notes", "1.0.0"),
    "a later schema": lambda good: of(good, "notes", "2.0.0", schema=99),
    "a huge schema": lambda good: of(good, "notes", "2.0.0", schema=10**400),
    "no split": lambda good: of(good, "notes", "2.0.0", splits={}),
    "a shard elsewhere": lambda good: of(good, "notes", "2.0.0", splits=shard(good, file="../1.0.0/x")),
    "a shard that is a path": lambda good: of(good, "notes", "2.0.0", splits=shard(good, file="a/b")),
    "a shard with an escape": lambda good: of(good, "notes", "2.0.0", splits=shard(good, file="a\x1b")),
    "a negative number": lambda good: of(good, "notes", "2.0.0", splits=shard(good, records=-1)),
    "a fraction": lambda good: of(good, "notes", "2.0.0", splits=shard(good, bytes=1.5)),
    "a checksum of nonsense": lambda good: of(good, "notes", "2.0.0", splits=shard(good, crc32c="=")),
    "a shard in two splits": lambda good: of(
        good, "notes", "2.0.0", splits={"a": shard(good)["train"], "b": shard(good)["train"]}
    ),
    "a file elsewhere": lambda good: of(
        good, "notes", "2.0.0", files={"../x": {"bytes": 1, "crc32c": "AAAAAA=="}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_bad_manifest_is_one_warning(
    tpuctl: Command, bucket: Bucket, manifest: dict[str, object], node: str, case: str
) -> None:
    name = "datasets/notes/2.0.0/manifest.json"
    bucket.upload(name, [CASES[case](manifest)], "application/json")
    Path("job.py").write_text(JOB.format(dataset="notes"))
    commands = {
        ("data", "ls"): "notes",
        ("data", "ls", "--json"): '"version": "1.0.0"',
        ("data", "head", "notes"): "TEXT",
        ("data", "describe", "notes"): "1.0.0",
        ("data", "verify", "notes", "--deep"): "notes/1.0.0 is complete",
        ("data", "stats", "notes"): "duplicates in train  3",
        ("data", "diff", "notes/1.0.0", "notes"): "There are no differences",
        ("data", "split", "notes", "--splits", "a=0.5,b=0.5", "--as", "3.0.0", "--dry-run"): "notes/3.0.0",
        ("data", "sample", "notes", "-n", "2", "--to", "look", "--dry-run"): "2 records would be written",
        ("submit", "job.py", "--dry-run"): "start job.py",
    }
    for command, text in commands.items():
        result = tpuctl(*command)
        assert result.code == 0, result.err
        assert text in result.out
        warnings = [line for line in result.err.splitlines() if line.startswith("Warning: ")]
        assert [line.startswith(f"Warning: {name} ") for line in warnings] == [True], result.err
        assert result.err.replace("\n", "").isprintable()


def test_names_of_columns_and_classes_may_be_odd(tpuctl: Command, bucket: Bucket) -> None:
    name = "a/b.. c\t(é)"
    rows = [{name: label, "text": "x"} for label in ("x" * 5000, "../y", "é/z")] * 2
    Path("odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    uploaded = tpuctl("data", "upload", "odd", "odd.jsonl", "--label", name)
    assert uploaded.code == 0, uploaded.err
    commands = [(command, "odd") for command in ("describe", "head", "verify", "stats")]
    split = ("split", "odd", "--splits", "a=0.5,b=0.5", "--dry-run")
    for command in (*commands, split, ("sample", "odd", "--to", "look")):
        result = tpuctl("data", *command)
        assert result.code == 0, result.err


def test_a_version_that_is_named_is_refused_and_can_be_removed(
    tpuctl: Command, bucket: Bucket, manifest: dict[str, object]
) -> None:
    bucket.upload("datasets/notes/2.0.0/manifest.json", [b"{}"], "application/json")
    commands = [(command, "notes/2.0.0") for command in ("head", "describe", "verify", "stats")]
    split = ("split", "notes/2.0.0", "--splits", "a=0.5,b=0.5")
    sample = ("sample", "notes/2.0.0", "--to", "look")
    for command in (*commands, split, sample, ("diff", "notes/1.0.0", "notes/2.0.0")):
        refused = tpuctl("data", *command)
        assert refused.code == 4, command
        assert "Error: datasets/notes/2.0.0/manifest.json is not a dataset's manifest" in refused.err
        assert "tpuctl data rm notes/2.0.0" in refused.err
    refused = tpuctl("data", "upload", "notes", "notes.jsonl", "--version", "2.0.0")
    assert (refused.code, "manifest.json is not a dataset's manifest" in refused.err) == (4, True)
    assert tpuctl("data", "rm", "notes/2.0.0", "--yes").code == 0
    assert bucket.objects("datasets/notes/2.0.0/") == []
    assert tpuctl("data", "upload", "notes", "notes.jsonl", "--version", "2.0.0").code == 0


FOLDERS = ["²/1.0.0", "notes/²", "notes/1.0.²", "x\x1b[2J/1.0.0", f"notes/{'9' * 300}", ".."]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_that_are_no_dataset_are_warnings(
    tpuctl: Command, bucket: Bucket, manifest: dict[str, object], folder: str
) -> None:
    bucket.upload(f"datasets/{folder}/manifest.json", [of(manifest, "notes", "1.0.0")], "application/json")
    listed = tpuctl("data", "ls")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "notes"]
    assert ("cannot be a dataset's" in listed.err) == ("/" in folder)
    assert listed.err.replace("\n", "").isprintable()
    assert tpuctl("data", "head", "notes").code == 0


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'{"shards": {"x": 1}, "files": {}}'])
def test_an_upload_that_others_began_with_nonsense_is_named(
    tpuctl: Command, bucket: Bucket, manifest: dict[str, object], content: bytes
) -> None:
    from hashlib import sha256

    good = of(manifest, "notes", "3.0.0")
    folder = "datasets/notes/3.0.0/"
    bucket.upload(f"{folder}commit.json", [good], "application/json")
    bucket.upload(f"{folder}staging/{sha256(good).hexdigest()}.moves.json", [content], "application/json")
    refused = tpuctl("data", "upload", "notes", "notes.jsonl", "--version", "3.0.0")
    assert refused.code == 4
    assert "moves.json does not say how to finish an upload" in refused.err
    bucket.upload(f"{folder}commit.json", [content], "application/json")
    refused = tpuctl("data", "upload", "notes", "notes.jsonl", "--version", "3.0.0")
    assert refused.code == 4
    assert f"{folder}commit.json is not a dataset's manifest" in refused.err
    assert tpuctl("data", "rm", "notes/3.0.0", "--yes").code == 0
    assert tpuctl("data", "upload", "notes", "notes.jsonl", "--version", "3.0.0").code == 0
