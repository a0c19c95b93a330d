"""What a path of `tpuctl cp` means: on hosts, or on this machine."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.remote.copy import CopyRequest, RemotePath, parse_copy, parse_path
from tpuctl.flows.remote.targets import HostName, parse_workers


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


def copy_of(sources: tuple[str, ...], destination: str, *, is_upload: bool) -> CopyRequest:
    """Return a copy to or from n1 and this machine."""
    if is_upload:
        return parse_copy(sources, f"n1:{destination}")
    return parse_copy([f"n1:{source}" for source in sources], destination)


@pytest.mark.parametrize("is_upload", [True, False])
@pytest.mark.parametrize(
    ("sources", "destination", "is_folder"),
    [
        (("a",), "x", False), (("a",), "x/y", False), (("a",), "~x", False), (("a",), ".x", False),
        (("a",), "", True), (("a",), "x/", True), (("a",), ".", True), (("a",), "x/.", True),
        (("a",), "..", True), (("a",), "x/..", True), (("a",), "~", True),
        (("a/.",), "x", True), (("a/",), "x", False), (("a", "b"), "x", True),
    ],
)  # fmt: skip
def test_what_is_typed_says_whether_the_destination_is_a_folder(
    sources: tuple[str, ...], destination: str, is_folder: bool, is_upload: bool
) -> None:
    assert copy_of(sources, destination, is_upload=is_upload).is_folder is is_folder


@pytest.mark.parametrize("pattern", ["a*", "a?", "[ab]"])
def test_a_wildcard_stands_for_several_on_hosts_alone(pattern: str) -> None:
    assert copy_of((pattern,), "x", is_upload=False).is_folder
    assert not copy_of((pattern,), "x", is_upload=True).is_folder


def test_a_copy_has_a_direction() -> None:
    assert parse_copy(["a", "b"], "n1:x") == CopyRequest(HostName("n1"), True, ("a", "b"), "x")
    assert parse_copy(["n1:a", "n1:b"], "x") == CopyRequest(HostName("n1"), False, ("a", "b"), "x")


@pytest.mark.parametrize(
    ("sources", "destination", "message", "hint"),
    [
        (["n1:a"], "n1:b", "Both sides are on hosts.",
         "Copy to this machine first, then from here to the hosts."),
        (["a"], "b", "No path is on a TPU.",
         "Write NAME:PATH for one on its hosts, or :PATH for your only TPU."),
        (["n1:a", "b"], "c", "The sources are on several machines.", "Copy from one at a time."),
        (["n1:a", "n2:b"], "c", "The sources are on several machines.", "Copy from one at a time."),
    ],
)  # fmt: skip
def test_a_copy_between_other_places_is_refused(
    sources: list[str], destination: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_copy(sources, destination)
    assert (caught.value.message, caught.value.hint) == (message, hint)
