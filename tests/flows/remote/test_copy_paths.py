"""What a path of `tpuctl cp` means: on hosts, or on this machine."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.remote.copy_paths import RemotePath, parse_path
from tpuctl.flows.remote.workers import HostName, parse_workers


@pytest.mark.parametrize(
    ("text", "name", "workers", "path"),
    [
        ("n1:a", "n1", None, "a"),
        ("n1@3:a:b", "n1", "3", "a:b"),
        (":a", "", None, "a"),
        ("@1:a", "", "1", "a"),
        ("n1:", "n1", None, ""),
    ],
)
def test_a_path_on_hosts(text: str, name: str, workers: str | None, path: str) -> None:
    assert parse_path(text) == RemotePath(HostName(name, parse_workers(workers) if workers else None), path)


@pytest.mark.parametrize("text", ["a", "./n1:a", "/n1:a", "a/b:c"])
def test_a_path_on_this_machine(text: str) -> None:
    assert parse_path(text) == text


@pytest.mark.parametrize("text", ["gs://bucket/a", "n1@:a", "@:a"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)
