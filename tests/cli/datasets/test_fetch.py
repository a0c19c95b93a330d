"""`tpuctl data fetch` as a user runs it, from a server of this machine or from a folder."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.cloud.web_server import WebServer, serving
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.data.public import PUBLIC, Form, PublicFile, copied
from tpuctl.printable import format_bytes

Tpuctl = Callable[..., CommandResult]


@pytest.fixture
def arrays(home: Path) -> bytes:
    """A dataset in one file."""
    np.savez("small.npz", x_train=np.zeros((4, 2), np.int16), y_train=np.array([0, 1, 0, 1]))
    return Path("small.npz").read_bytes()


@pytest.fixture
def server(arrays: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """MNIST as the table has it, but of a server on this machine, and small."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving({"/mnist.npz": arrays}) as running:
        file = PublicFile("mnist.npz", sha256(arrays).hexdigest(), [f"{running.url}/mnist.npz"], len(arrays))
        monkeypatch.setitem(PUBLIC, "mnist", PUBLIC["mnist"]._replace(forms=[Form([file], copied)]))
        yield running


@pytest.mark.parametrize("arguments", [(), ("mnist", "--list")])
def test_it_lists_what_there_is(tpuctl: Tpuctl, home: Path, arguments: tuple[str, ...]) -> None:
    result = tpuctl("data", "fetch", *arguments)
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == list(PUBLIC)
    listed = tpuctl("data", "fetch", *arguments, "--json").json["datasets"]
    assert [dataset["name"] for dataset in listed] == list(PUBLIC)
    assert listed[0]["files"][0]["sha256"] == PUBLIC["mnist"].forms[0].files[0].sha256
    assert listed[0]["next"] == "tpuctl data upload mnist data/mnist"
    assert result.out.splitlines()[0].split() == ["NAME", "SIZE", "WHAT", "LICENCE"]
    assert result.err.splitlines()[-1] == "Next: tpuctl data fetch NAME"
    sizes = [[file["bytes"] for file in dataset["files"]] for dataset in listed]
    shown = [re.split(r" {2,}", line)[1] for line in result.out.splitlines()[1:]]
    for known, text in zip(sizes, shown, strict=True):
        if all(known):
            assert text == format_bytes(sum(known))
        else:
            assert text not in map(format_bytes, filter(None, known)), "a sum of some is not the size"


def test_what_was_fetched_is_uploaded_by_the_command_it_names(
    tpuctl: Tpuctl, server: WebServer, simulator: RunningSimulator
) -> None:
    result = tpuctl("data", "fetch", "mnist")
    assert result.code == 0, result.err
    assert os.listdir("data") == ["mnist"]
    program, *command = shlex.split(result.err.splitlines()[-1].removeprefix("Next: "))
    assert [program, *command] == ["tpuctl", "data", "upload", "mnist", "data/mnist"]
    assert tpuctl(*command).code == 0
    again = tpuctl("data", "fetch", "mnist")
    assert (again.code, "mnist (was there already)" in again.out) == (0, True)
    assert server.requests == ["/mnist.npz"]


def test_it_says_the_same_as_json(tpuctl: Tpuctl, server: WebServer, arrays: bytes) -> None:
    fetched = tpuctl("data", "fetch", "mnist", "--to", "a place", "--json").json
    assert (fetched["folder"], fetched["already_there"], fetched["unverified"]) == ("a place", False, [])
    assert fetched["files"] == {"mnist.npz": sha256(arrays).hexdigest()}
    assert fetched["next"] == "tpuctl data upload mnist 'a place'"
    fields = "schema name folder already_there files unverified licence source next"
    assert (" ".join(fetched), fetched["name"]) == (fields, "mnist")
    assert tpuctl("data", "fetch", "mnist", "--to", "a place", "--json").json["already_there"] is True
    text = tpuctl("data", "fetch", "mnist", "--to", "a place")
    facts = [line.split(maxsplit=1) for line in text.out.splitlines()]
    assert facts == [
        ["dataset", "mnist (was there already)"],
        ["what", "70,000 handwritten digits, 28 × 28"],
        ["where", "a place"],
        ["licence", fetched["licence"]],
        ["source", fetched["source"]],
    ]


def test_a_rehearsal_names_what_it_would_ask_for_and_asks_nothing(
    tpuctl: Tpuctl, server: WebServer, arrays: bytes
) -> None:
    result = tpuctl("data", "fetch", "mnist", "--dry-run")
    assert result.out == f"GET {server.url}/mnist.npz ({len(arrays)} B)\n"
    requests = tpuctl("data", "fetch", "mnist", "--dry-run", "--json").json["requests"]
    assert requests == [{"method": "GET", "url": f"{server.url}/mnist.npz", "bytes": len(arrays)}]
    assert server.requests == []
    assert not Path("data").exists()
    assert "Nothing would be sent" in tpuctl("data", "fetch", "mnist", "--from", ".", "--dry-run").err


def test_a_folder_with_the_files_needs_no_network(tpuctl: Tpuctl, server: WebServer) -> None:
    Path("downloads").mkdir()
    Path("small.npz").rename("downloads/mnist.npz")
    result = tpuctl("data", "fetch", "mnist", "--from", "downloads")
    assert result.code == 0, result.err
    assert server.requests == []
    assert Path("data/mnist/mnist.npz").read_bytes() == Path("downloads/mnist.npz").read_bytes()


def test_another_file_of_that_name_is_taken_only_when_asked(tpuctl: Tpuctl, server: WebServer) -> None:
    Path("mnist.npz").write_bytes(Path("small.npz").read_bytes() + b"x")
    result = tpuctl("data", "fetch", "mnist", "--from", ".")
    assert result.code == 4
    assert f"has the SHA-256 {sha256(Path('mnist.npz').read_bytes()).hexdigest()}" in result.err
    result = tpuctl("data", "fetch", "mnist", "--from", ".", "--unverified")
    assert result.code == 0
    assert "mnist.npz has another checksum than the published file" in result.err


def test_what_is_not_there_or_cannot_be_meant_is_told(tpuctl: Tpuctl, server: WebServer) -> None:
    server.files.clear()
    result = tpuctl("data", "fetch", "mnist")
    assert (result.code, "/mnist.npz is not there" in result.err, "--from FOLDER" in result.err) == (
        4,
        True,
        True,
    )
    result = tpuctl("data", "fetch", "minst")
    assert (result.code, "Did you mean mnist?" in result.err) == (2, True)
    assert tpuctl("data", "fetch", "mnist", "--unverified").code == 2
    assert tpuctl("data", "fetch", "mnist", "--from", "nowhere").code == 2
