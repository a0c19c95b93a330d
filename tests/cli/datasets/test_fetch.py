"""`tpuctl data fetch` as a user runs it, from a server of this machine or from a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cloud.web_server import WebServer, serving
from tpuctl.data.public.catalogue import PUBLIC, Form, PublicFile
from tpuctl.data.public.unpacking import copied


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
    with serving({"/mnist.npz": arrays}) as found:
        file = PublicFile("mnist.npz", sha256(arrays).hexdigest(), [f"{found.url}/mnist.npz"], len(arrays))
        monkeypatch.setitem(PUBLIC, "mnist", PUBLIC["mnist"]._replace(forms=[Form([file], copied)]))
        yield found


@pytest.mark.parametrize("arguments", [(), ("mnist", "--list")])
def test_it_lists_what_there_is(tpuctl: Any, home: Path, arguments: tuple[str, ...]) -> None:
    done = tpuctl("data", "fetch", *arguments)
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == list(PUBLIC)
    found = tpuctl("data", "fetch", *arguments, "--json").json["datasets"]
    assert [one["name"] for one in found] == list(PUBLIC)
    assert found[0]["files"][0]["sha256"] == PUBLIC["mnist"].forms[0].files[0].sha256


def test_what_was_fetched_is_uploaded_by_the_command_it_names(
    tpuctl: Any, server: WebServer, simulator: Any
) -> None:
    done = tpuctl("data", "fetch", "mnist")
    assert done.code == 0, done.err
    assert os.listdir("data") == ["mnist"]
    program, *command = shlex.split(done.err.splitlines()[-1].removeprefix("Next: "))
    assert [program, *command] == ["tpuctl", "data", "upload", "mnist", "data/mnist"]
    assert tpuctl(*command).code == 0
    again = tpuctl("data", "fetch", "mnist")
    assert (again.code, "mnist (was there already)" in again.out) == (0, True)
    assert server.asked == ["/mnist.npz"]


def test_it_says_the_same_as_json(tpuctl: Any, server: WebServer, arrays: bytes) -> None:
    found = tpuctl("data", "fetch", "mnist", "--to", "a place", "--json").json
    assert (found["folder"], found["already_there"], found["unverified"]) == ("a place", False, [])
    assert found["files"] == {"mnist.npz": sha256(arrays).hexdigest()}
    assert found["next"] == "tpuctl data upload mnist 'a place'"


def test_a_rehearsal_names_what_it_would_ask_for_and_asks_nothing(
    tpuctl: Any, server: WebServer, arrays: bytes
) -> None:
    done = tpuctl("data", "fetch", "mnist", "--dry-run")
    assert done.out == f"GET {server.url}/mnist.npz ({len(arrays)} B)\n"
    found = tpuctl("data", "fetch", "mnist", "--dry-run", "--json").json["requests"]
    assert found == [{"method": "GET", "url": f"{server.url}/mnist.npz", "bytes": len(arrays)}]
    assert server.asked == []
    assert not Path("data").exists()
    assert "Nothing would be sent" in tpuctl("data", "fetch", "mnist", "--from", ".", "--dry-run").err


def test_a_folder_with_the_files_needs_no_network(tpuctl: Any, server: WebServer) -> None:
    Path("downloads").mkdir()
    Path("small.npz").rename("downloads/mnist.npz")
    done = tpuctl("data", "fetch", "mnist", "--from", "downloads")
    assert done.code == 0, done.err
    assert server.asked == []
    assert Path("data/mnist/mnist.npz").read_bytes() == Path("downloads/mnist.npz").read_bytes()


def test_another_file_of_that_name_is_taken_only_when_asked(tpuctl: Any, server: WebServer) -> None:
    Path("mnist.npz").write_bytes(Path("small.npz").read_bytes() + b"x")
    done = tpuctl("data", "fetch", "mnist", "--from", ".")
    assert done.code == 4
    assert f"has the SHA-256 {sha256(Path('mnist.npz').read_bytes()).hexdigest()}" in done.err
    done = tpuctl("data", "fetch", "mnist", "--from", ".", "--unverified")
    assert done.code == 0
    assert "not the published mnist.npz" in done.err


def test_what_is_not_there_or_cannot_be_meant_is_told(tpuctl: Any, server: WebServer) -> None:
    server.files.clear()
    done = tpuctl("data", "fetch", "mnist")
    assert (done.code, "/mnist.npz is not there" in done.err, "--from FOLDER" in done.err) == (4, True, True)
    done = tpuctl("data", "fetch", "minst")
    assert (done.code, "Did you mean mnist?" in done.err) == (2, True)
    assert tpuctl("data", "fetch", "mnist", "--unverified").code == 2
    assert tpuctl("data", "fetch", "mnist", "--from", "nowhere").code == 2
