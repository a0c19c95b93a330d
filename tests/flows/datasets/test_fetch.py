"""Getting a public dataset: all of it or nothing, from a server that fails, or from a folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.cloud.web_server import WebServer, refusing, serving
from tpuctl.cloud.downloads import Downloads
from tpuctl.data.public import PUBLIC, Form, PublicDataset, PublicFile, copied
from tpuctl.errors import DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.flows.datasets import fetch as flow
from tpuctl.local import private_folder

A, B, OTHER = b"a" * 300_000, b"b" * 300_000, b"other"


@contextmanager
def silent(step: str) -> Iterator[Callable[[int, int], None]]:
    yield lambda size, total: None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving({"/a": A, "/b": B}) as running:
        yield running


@pytest.fixture
def downloads() -> Iterator[Downloads]:
    client = Downloads(sleep=lambda seconds: None)
    yield client
    client.close()


def published(name: str, data: bytes, *urls: str) -> PublicFile:
    return PublicFile(name, sha256(data).hexdigest(), urls, len(data))


def public_set(server: WebServer) -> PublicDataset:
    files = [published("a", A, f"{server.url}/gone", f"{server.url}/a"), published("b", B, f"{server.url}/b")]
    return PublicDataset(
        "two files", [Form(files, copied), Form([published("c", OTHER)], copied)], "", "", ""
    )


def below(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


class TestFetched:
    def test_all_files_come_from_the_first_place_that_has_them(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        result = flow.fetch("two", public_set(server), tmp_path / "data" / "two", downloads, silent)
        assert not result.already_there
        assert below(tmp_path) == ["data/two/.fetched.json", "data/two/a", "data/two/b"]
        assert (tmp_path / "data" / "two" / "a").read_bytes() == A
        requested = list(server.requests)
        assert requested == ["/gone", "/a", "/b"]
        assert flow.fetch(
            "two", public_set(server), tmp_path / "data" / "two", downloads, silent
        ).already_there
        assert server.requests == requested
        assert flow.missing(public_set(server), tmp_path / "data" / "two") == []

    def test_a_second_one_at_once_waits_and_finds_it_there(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both would write the same part, and each deletes the folder of both."""
        folder, hold, waits = tmp_path / "two", private_folder.hold, threading.Event()

        def hold_and_say(work: Path, on_wait: Callable[[], object]) -> int:
            return hold(work, waits.set)

        fetch = downloads.fetch

        def fetch_once_the_other_waits(*arguments: Any) -> None:
            if not waits.is_set():
                second = pool.submit(flow.fetch, "two", public_set(server), folder, downloads, silent)
                others.append(second)
                assert waits.wait(60)
            fetch(*arguments)

        others: list[Future[flow.FetchResult]] = []
        monkeypatch.setattr(private_folder, "hold", hold_and_say)
        monkeypatch.setattr(downloads, "fetch", fetch_once_the_other_waits)
        with ThreadPoolExecutor(1) as pool:
            first = flow.fetch("two", public_set(server), folder, downloads, silent)
        assert [first.already_there, *(other.result().already_there for other in others)] == [False, True]
        assert server.requests == ["/gone", "/a", "/b"]
        assert below(tmp_path) == ["two/.fetched.json", "two/a", "two/b"]

    def test_each_step_ends_with_all_that_it_says_it_counts(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        counts: dict[str, tuple[int, int]] = {}

        @contextmanager
        def phase(step: str) -> Iterator[Callable[[int, int], None]]:
            yield lambda done, total: counts.update({step: (done, total)})

        flow.fetch("two", public_set(server), tmp_path / "two", downloads, phase)
        assert {step: counts[step] for step in ("kB of a", "kB of b")} == {
            "kB of a": (300, 300), "kB of b": (300, 300),
        }  # fmt: skip
        checked = {step: count for step, count in counts.items() if "check" in step}
        assert set(checked.values()) == {(300, 300)}

    def test_an_interrupted_file_resumes_and_complete_files_are_kept(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        server.cut_after = [len(A), 100_000, 0, 0, 0]
        with pytest.raises(DeadlineError, match="/b cannot be fetched") as caught:
            flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert "--from FOLDER" in caught.value.hint
        assert below(tmp_path) == [".two.fetch/a", ".two.fetch/b.part"]
        server.requests.clear()
        server.cut_after.clear()
        flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert server.requests == ["/b bytes=100000-"]
        assert below(tmp_path) == ["two/.fetched.json", "two/a", "two/b"]

    def test_wrong_bytes_are_named_with_both_checksums_and_removed(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        server.files["/b"] = OTHER
        with pytest.raises(StateError) as caught:
            flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert sha256(OTHER).hexdigest() in caught.value.message
        assert sha256(B).hexdigest() in caught.value.message
        assert below(tmp_path) == [".two.fetch/a"]
        server.files["/b"] = B
        flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert (tmp_path / "two" / "b").read_bytes() == B

    @pytest.mark.parametrize("planted", ["a", "b", "a.part", "b.part", "unpacked"])
    def test_a_link_in_the_folder_of_a_started_fetch_is_not_followed(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, planted: str
    ) -> None:
        """A project from elsewhere can bring `data/.mnist.fetch` along."""
        private = tmp_path / "private"
        (private / "inner").mkdir(parents=True)
        (private / "key").write_text("secret")
        (tmp_path / ".two.fetch").mkdir()
        target = private if planted == "unpacked" else private / "key"
        (tmp_path / ".two.fetch" / planted).symlink_to(target)
        flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert (private / "key").read_text() == "secret"
        assert (private / "inner").is_dir()
        assert [(tmp_path / "two" / name).read_bytes() for name in "ab"] == [A, B]

    @pytest.mark.parametrize("kind", ["pipe", "link"])
    def test_a_mark_that_no_fetch_has_written_is_not_read(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, kind: str
    ) -> None:
        """A project from elsewhere may bring one: a pipe would never end, and a link leads to a device."""
        own, mark = tmp_path / "own.json", tmp_path / "two" / flow.MARK
        own.write_bytes(msgspec.json.encode(flow.Fetched("two", {})))
        mark.parent.mkdir()
        os.mkfifo(mark) if kind == "pipe" else mark.symlink_to(own)
        with pytest.raises(StateError, match="is there already, and is not the dataset 'two'"):
            flow.fetch("two", public_set(server), mark.parent, downloads, silent)

    @pytest.mark.parametrize("source", ["server", "folder"])
    def test_a_folder_of_a_started_fetch_that_is_a_link_is_not_used(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, source: str
    ) -> None:
        private = tmp_path / "private"
        (private / "unpacked").mkdir(parents=True)
        (private / "unpacked" / "kept").write_text("kept")
        (tmp_path / ".two.fetch").symlink_to(private)
        if source == "server":
            flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        else:
            (tmp_path / "c").write_bytes(OTHER)
            flow.take("two", public_set(server), tmp_path / "two", tmp_path, silent)
        assert below(private) == ["unpacked/kept"]
        assert (tmp_path / "two" / ".fetched.json").is_file()

    def test_a_file_that_somebody_else_put_there_is_not_believed(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        (tmp_path / ".two.fetch").mkdir()
        (tmp_path / ".two.fetch" / "a").write_bytes(b"poisoned")
        flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert (tmp_path / "two" / "a").read_bytes() == A

    def test_offline_it_says_so_and_leaves_nothing(self, downloads: Downloads, tmp_path: Path) -> None:
        with refusing() as stopped, pytest.raises(DeadlineError) as caught:
            flow.fetch("two", public_set(stopped), tmp_path / "two", downloads, silent)
        assert "no connection" in caught.value.message
        assert caught.value.exit_code == 9
        assert "--from FOLDER" in caught.value.hint
        assert below(tmp_path) == []
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_with_something_else_is_left_alone(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "mine").write_text("mine")
        with pytest.raises(StateError, match="is there already, and is not the dataset 'two'"):
            flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        assert below(tmp_path) == ["two/mine"]
        (tmp_path / "two" / "mine").unlink()
        flow.fetch("two", public_set(server), tmp_path / "two", downloads, silent)
        with pytest.raises(StateError, match="is not the dataset 'three'"):
            flow.fetch("three", public_set(server), tmp_path / "two", downloads, silent)

    def test_an_archive_that_cannot_be_unpacked_leaves_no_dataset(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        def broken(files: object, folder: Path) -> None:
            (folder / "half").write_text("half")
            raise UsageError("It is damaged.")

        complete = public_set(server)
        half = complete._replace(forms=[complete.forms[0]._replace(unpack=broken)])
        with pytest.raises(UsageError, match="damaged"):
            flow.fetch("two", half, tmp_path / "two", downloads, silent)
        assert not (tmp_path / "two").exists()
        server.requests.clear()
        flow.fetch("two", complete, tmp_path / "two", downloads, silent)
        assert below(tmp_path) == ["two/.fetched.json", "two/a", "two/b"]
        assert server.requests == []

    def test_a_place_that_cannot_be_written_is_named(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StateError, match=r"Cannot write '.*file") as caught:
            flow.fetch("two", public_set(server), tmp_path / "file" / "two", downloads, silent)
        assert "--to" in caught.value.hint


class TestTaken:
    @pytest.fixture
    def local(self, tmp_path: Path) -> Path:
        (tmp_path / "local" / "deep").mkdir(parents=True)
        (tmp_path / "local" / "a").write_bytes(A)
        (tmp_path / "local" / "deep" / "b").write_bytes(B)
        return tmp_path / "local"

    def test_files_are_found_at_any_depth_and_left_where_they_are(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        result = flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert below(tmp_path / "two") == [".fetched.json", "a", "b"]
        assert result.fetched.files == {"a": sha256(A).hexdigest(), "b": sha256(B).hexdigest()}
        assert below(local) == ["a", "deep/b"]
        assert server.requests == []
        assert flow.take("two", public_set(server), tmp_path / "two", tmp_path / "no", silent).already_there

    def test_what_is_no_file_is_passed_over(self, server: WebServer, local: Path, tmp_path: Path) -> None:
        """A device has no end, and a pipe no writer."""
        (local / "another").mkdir()
        (local / "another" / "a").symlink_to("/dev/null")
        (local / "b").symlink_to("nothing")
        result = flow.take("two", public_set(server), tmp_path / "two", local, silent, unverified=True)
        assert not result.fetched.unverified
        (local / "a").unlink()
        with pytest.raises(NotFoundError, match="does not hold a"):
            flow.take("two", public_set(server), tmp_path / "more", local, silent)

    def test_of_several_files_of_a_name_the_right_one_is_taken(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        (local / "another").mkdir()
        (local / "another" / "a").write_bytes(OTHER)
        flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert (tmp_path / "two" / "a").read_bytes() == A

    def test_a_wrong_file_is_named_with_both_checksums_and_accepted_only_when_requested(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        (local / "deep" / "b").write_bytes(OTHER)
        with pytest.raises(StateError) as caught:
            flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert f"{local / 'deep' / 'b'}' has the SHA-256 {sha256(OTHER).hexdigest()}" in caught.value.message
        assert sha256(B).hexdigest() in caught.value.message
        assert "--unverified" in caught.value.hint
        assert not (tmp_path / "two").exists()
        result = flow.take("two", public_set(server), tmp_path / "two", local, silent, unverified=True)
        assert result.fetched.unverified == ("b",)
        assert (tmp_path / "two" / "b").read_bytes() == OTHER
        (local / "b").write_bytes(OTHER)
        with pytest.raises(UsageError, match="There are several files b"):
            flow.take("two", public_set(server), tmp_path / "2", local, silent, unverified=True)

    def test_files_that_are_not_there_are_named(self, server: WebServer, local: Path, tmp_path: Path) -> None:
        (local / "a").unlink()
        with pytest.raises(NotFoundError, match="local' does not hold a, or c"):
            flow.take("two", public_set(server), tmp_path / "two", local, silent)
        with pytest.raises(UsageError, match="There is no folder"):
            flow.take("two", public_set(server), tmp_path / "two", local / "no", silent)

    def test_another_form_of_the_dataset_is_taken_too(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        (local / "a").unlink()
        (local / "c").write_bytes(OTHER)
        result = flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert list(result.fetched.files) == ["c"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_row_of_the_table_is_complete(name: str) -> None:
    dataset = PUBLIC[name]
    for file in (file for form in dataset.forms for file in form.files):
        assert len(file.sha256) == 64
        assert set(file.sha256) <= set("0123456789abcdef")
    assert all(file.urls for file in dataset.forms[0].files)
    assert all(url.endswith(f"/{file.name}") for file in dataset.forms[0].files for url in file.urls)
    assert dataset.licence
    assert dataset.source


class TestLimits:
    def test_what_the_disk_does_not_hold_is_not_requested(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        large = published("a", A, f"{server.url}/a")._replace(size=1 << 60)
        dataset = PublicDataset("large", [Form([large], copied)], "", "", "")
        with pytest.raises(StateError, match="MB free in"):
            flow.fetch("large", dataset, tmp_path / "large", downloads, silent)
        assert server.requests == []
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("size", [len(A) - 1, 0])
    def test_a_file_that_is_larger_than_published_is_not_kept(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, monkeypatch, size: int
    ) -> None:
        monkeypatch.setattr(flow, "UNKNOWN", len(A) - 1)  # of a file whose size is not known
        small = published("a", A, f"{server.url}/a")._replace(size=size)
        dataset = PublicDataset("small", [Form([small], copied)], "", "", "")
        with pytest.raises(StateError, match=f"has {len(A)} bytes, and the published one has at most"):
            flow.fetch("small", dataset, tmp_path / "small", downloads, silent)
        assert below(tmp_path) == []

    @pytest.mark.parametrize(("free", "is_enough"), [(1_000_000, True), (999_999, False)])
    def test_the_disk_has_to_hold_what_is_unpacked_besides_the_files(
        self, server: WebServer, downloads: Downloads, tmp_path: Path, monkeypatch, free: int, is_enough: bool
    ) -> None:
        """Of 600 kB a part is there already: 200 kB."""
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(flow, "shutil", SimpleNamespace(disk_usage=lambda path: usage, rmtree=rmtree))
        (tmp_path / ".two.fetch").mkdir()
        (tmp_path / ".two.fetch" / "b.part").write_bytes(B[:200_000])
        dataset = public_set(server)
        if is_enough:
            assert not flow.fetch("two", dataset, tmp_path / "two", downloads, silent).already_there
            return
        with pytest.raises(StateError) as full:
            flow.fetch("two", dataset, tmp_path / "two", downloads, silent)
        assert full.value.message == (
            f"There are 1 MB free in '{tmp_path}', and the files need about 1 MB, unpacked ones included."
        )
        assert full.value.hint == "Free some space, or give another place with --to."
        assert full.value.facts == {"folder": str(tmp_path)}


class TestWords:
    @pytest.fixture
    def local(self, tmp_path: Path) -> Path:
        (tmp_path / "local").mkdir()
        return tmp_path / "local"

    def test_of_a_file_that_differs_have_both_checksums(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        (local / "a").write_bytes(A)
        (local / "b").write_bytes(OTHER)
        with pytest.raises(StateError) as caught:
            flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert caught.value.hint == "If it holds the same data in another archive, use it with --unverified."
        assert caught.value.facts == {
            "file": str(local / "b"), "sha256": sha256(OTHER).hexdigest(), "wanted": sha256(B).hexdigest(),
        }  # fmt: skip

    def test_of_files_that_are_missing_say_where_they_may_be(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        (local / ".hidden").mkdir()
        (local / ".hidden" / "c").write_bytes(OTHER)
        with pytest.raises(NotFoundError) as caught:
            flow.take("two", public_set(server), tmp_path / "two", local, silent)
        assert caught.value.message == f"'{local}' does not hold a, b, or c."
        assert caught.value.hint == (
            "Give the folder that holds the files under these names, itself or in a folder below."
        )
        assert caught.value.facts == {"folder": str(local)}

    def test_of_several_files_of_a_name_list_them(
        self, server: WebServer, local: Path, tmp_path: Path
    ) -> None:
        for folder in ("x", "y"):
            (local / folder).mkdir()
            (local / folder / "c").write_bytes(A)
        with pytest.raises(UsageError) as caught:
            flow.take("two", public_set(server), tmp_path / "two", local, silent, unverified=True)
        assert caught.value.message == (
            f"There are several files c: '{local / 'x' / 'c'}', '{local / 'y' / 'c'}'."
        )
        assert caught.value.hint == "Give --from the folder of one of them."

    def test_of_a_folder_with_something_else_name_it(
        self, server: WebServer, local: Path, downloads: Downloads
    ) -> None:
        (local / "mine").write_text("mine")
        with pytest.raises(StateError) as caught:
            flow.fetch("two", public_set(server), local, downloads, silent)
        assert caught.value.message == (
            f"'{local}' is there already, and is not the dataset 'two' as it was fetched."
        )
        assert caught.value.hint == "Give another place with --to, or remove it."
        assert caught.value.facts == {"folder": str(local)}

    def test_of_a_file_that_no_place_has_are_those_of_the_first(
        self, server: WebServer, downloads: Downloads, tmp_path: Path
    ) -> None:
        file = published("a", A, f"{server.url}/gone", f"{server.url}/also-gone")
        dataset = PublicDataset("one", [Form([file], copied)], "", "", "")
        with pytest.raises(NotFoundError, match="/gone") as caught:
            flow.fetch("one", dataset, tmp_path / "one", downloads, silent)
        assert "also-gone" not in caught.value.message
        assert caught.value.hint.endswith("Without a network, take the files from a folder: --from FOLDER.")
        assert server.requests == ["/gone", "/also-gone"]

    def test_of_what_would_be_downloaded_are_the_files_of_the_first_form(
        self, server: WebServer, tmp_path: Path
    ) -> None:
        assert [file.name for file in flow.missing(public_set(server), tmp_path)] == ["a", "b"]
