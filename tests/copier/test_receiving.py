"""What becomes of the files that the other end lists and sends, record by record."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.copier.wires import ScriptedEnd
from tpuctl.copier import receiving
from tpuctl.copier.frames import ProtocolError
from tpuctl.copier.receiving import Receiver, destination, part_name, receive_into
from tpuctl.local.confined_folder import ConfinedFolder

TIME = 1_700_000_000_123_456_789
GO = {"go": True}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(path: str, size: int = 0, **fields: Any) -> dict[str, Any]:
    """A file as the other end lists it."""
    return {"kind": "file", "path": path.split("/"), "size": size, "mode": 0o644, "mtime": TIME, **fields}


def sent(index: int, data: bytes, offset: int = 0) -> list[Any]:
    """What the other end sends of a file after some bytes of it."""
    return [{"begin": index, "offset": offset}, data[offset:], {"sum": digest(data), "file": index}]


class Copy:
    """A copy into a folder, from an end that lists some entries and sends some items."""

    def __init__(
        self,
        folder: Path,
        entries: Sequence[dict[str, Any]],
        *items: Any,
        name: str = "",
        refuse: Callable[[Sequence[str]], str | None] = lambda path: None,
    ) -> None:
        end = ScriptedEnd({"entries": entries}, {"listed": True}, *items, {"sent": True})
        self.steps: list[int] = []
        with ConfinedFolder(folder) as confined:
            receiver = Receiver(end.frames, confined, refuse, self.steps.append)
            self.result = receive_into(receiver, confined, name)
        self.got = end.got

    @property
    def counts(self) -> tuple[int, int, int]:
        """The files, their bytes, and the files that were here already."""
        return self.result["files"], self.result["bytes"], self.result["kept"]

    @property
    def failed(self) -> dict[str, str]:
        """The paths that failed, and why."""
        return dict(self.result["failed"])


def test_a_new_file_arrives_with_its_mode_and_time(tmp_path: Path) -> None:
    copy = Copy(tmp_path, [entry("f", 5, mode=0o777)], *sent(0, b"12345"))
    result = {"done": True, "files": 1, "bytes": 5, "kept": 0, "failed": [], "fatal": ""}
    assert copy.result == result
    assert copy.got == [{"had": [[0, 0, ""]]}, GO, result]
    assert copy.steps == [0, 5]
    status = (tmp_path / "f").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns, status.st_atime_ns) == (0o755, TIME, TIME)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"12345"


def test_a_file_that_is_here_is_kept_and_gets_its_mode_and_time(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    before = (tmp_path / "f").stat().st_ino
    copy = Copy(tmp_path, [entry("f", 5, mode=0o700)], {"begin": 0, "offset": 5}, *sent(0, b"12345")[2:])
    assert copy.got[0] == {"had": [[0, 5, digest(b"12345")]]}
    assert (copy.counts, copy.failed, copy.steps) == ((1, 5, 1), {}, [5])
    status = (tmp_path / "f").stat()
    assert (status.st_ino, stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (before, 0o700, TIME)


def test_what_is_here_below_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_bytes(b"12345")
    (tmp_path / "d/e" / part_name("g")).write_bytes(b"123")
    copy = Copy(tmp_path, [entry("d/e/f", 5), entry("d/e/g", 5)])
    assert copy.got[0] == {"had": [[0, 5, digest(b"12345")], [1, 3, digest(b"123")]]}


def test_a_file_of_the_same_size_and_other_content_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"xxxxx")
    copy = Copy(tmp_path, [entry("f", 5)], *sent(0, b"12345"))
    assert (copy.counts, (tmp_path / "f").read_bytes()) == ((1, 5, 0), b"12345")


@pytest.mark.parametrize(
    ("part", "size", "had"),
    [(b"123", 5, 3), (b"12345", 5, 5), (b"123456", 5, 0), (b"", 5, 0)],
    ids=["shorter", "as long", "longer", "empty"],
)
def test_a_part_counts_up_to_the_size_of_the_file(tmp_path: Path, part: bytes, size: int, had: int) -> None:
    (tmp_path / part_name("f")).write_bytes(part)
    copy = Copy(tmp_path, [entry("f", size)])
    assert copy.got[0] == {"had": [[0, had, digest(part[:had]) if had else ""]]}


@pytest.mark.parametrize("here", [b"1234", b"123456", b""], ids=["shorter", "longer", "empty"])
def test_a_file_of_another_size_does_not_count(tmp_path: Path, here: bytes) -> None:
    (tmp_path / "f").write_bytes(here)
    assert Copy(tmp_path, [entry("f", 5)]).got[0] == {"had": [[0, 0, ""]]}


def test_a_part_is_completed(tmp_path: Path) -> None:
    (tmp_path / part_name("f")).write_bytes(b"123")
    copy = Copy(tmp_path, [entry("f", 5)], *sent(0, b"12345", 3))
    assert (copy.counts, copy.failed, copy.steps) == ((1, 5, 0), {}, [3, 2])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"f": b"12345"}


def test_a_part_of_something_else_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / part_name("f")).write_bytes(b"1234567"[:4])
    Copy(tmp_path, [entry("f", 4)], *sent(0, b"ab"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"f": b"ab"}


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_a_file_begins_at_its_start_or_after_what_is_here(tmp_path: Path, offset: int) -> None:
    (tmp_path / part_name("f")).write_bytes(b"123")
    with pytest.raises(ProtocolError, match="was not requested"):
        Copy(tmp_path, [entry("f", 5)], *sent(0, b"12345", offset))


def test_a_file_is_taken_once(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="was not requested"):
        Copy(tmp_path, [entry("f", 1)], *sent(0, b"1"), *sent(0, b"1"))


def test_another_checksum_leaves_neither_the_file_nor_a_part(tmp_path: Path) -> None:
    copy = Copy(tmp_path, [entry("f", 1)], *sent(0, b"1")[:2], {"sum": digest(b"2"), "file": 0})
    assert (copy.counts, copy.failed) == ((0, 0, 0), {"f": "it arrived with another checksum"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("end", "reason"), [({"failed": "it changed"}, "it changed"), ({"file": 0}, "it was not sent")]
)
def test_a_file_that_ends_without_a_checksum_stays_a_part(
    tmp_path: Path, end: dict[str, object], reason: str
) -> None:
    copy = Copy(tmp_path, [entry("f", 5), entry("g", 1)], *sent(0, b"12")[:2], end, *sent(1, b"1"))
    assert (copy.counts, copy.failed) == ((1, 1, 0), {"f": reason})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {part_name("f"): b"12", "g": b"1"}
    assert stat.S_IMODE((tmp_path / part_name("f")).stat().st_mode) == 0o600, "nobody else reads a part"


def test_a_file_that_could_not_be_opened_there_is_named(tmp_path: Path) -> None:
    copy = Copy(
        tmp_path,
        [entry("f", 5), entry("d/g", 1)],
        {"alive": True},
        {"failed": "Permission denied", "file": 1},
    )
    assert (copy.counts, copy.failed) == ((0, 0, 0), {"d/g": "Permission denied"})


def test_what_is_refused_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    copy = Copy(
        tmp_path, [entry("f", 5), entry("g", 5), entry("d", kind="folder")],
        refuse=lambda path: None if path == ["g"] else "is not wanted",
    )  # fmt: skip
    assert copy.got[0] == {"had": [[1, 0, ""]]}
    assert copy.failed == {"f": "is not wanted", "d": "is not wanted"}
    assert not (tmp_path / "d").exists()


def test_the_list_of_what_is_here_comes_in_batches(tmp_path: Path) -> None:
    copy = Copy(tmp_path, [entry(f"f{index}", 1) for index in range(501)])
    assert [len(record["had"]) for record in copy.got[:-2]] == [500, 1]
    assert copy.got[1]["had"][0][0] == 500


class TestFolders:
    def test_a_folder_and_an_empty_one_arrive_with_their_modes(self, tmp_path: Path) -> None:
        folder = {"kind": "folder", "size": 0}
        copy = Copy(
            tmp_path, [entry("d", **folder), entry("d/e", **folder, mode=0o555), entry("d/f", 1)],
            *sent(2, b"1"),
        )  # fmt: skip
        assert (copy.counts, copy.failed) == ((1, 1, 0), {})
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d", tmp_path / "d/e")}
        assert modes == {"d": 0o744, "e": 0o755}, "the owner can use a folder"
        assert [path.name for path in tmp_path.iterdir()] == ["d"]

    def test_the_only_top_gets_the_name_of_the_destination(self, tmp_path: Path) -> None:
        Copy(tmp_path, [entry("d", kind="folder"), entry("d/f", 1)], *sent(1, b"1"), name="new")
        assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["new", "new/f"]

    def test_a_file_gets_the_name_of_the_destination(self, tmp_path: Path) -> None:
        Copy(tmp_path, [entry("f", 1)], *sent(0, b"1"), name="new")
        assert [path.name for path in tmp_path.iterdir()] == ["new"]

    def test_a_file_where_a_folder_must_be_fails_what_is_in_that(self, tmp_path: Path) -> None:
        (tmp_path / "d").touch()
        copy = Copy(
            tmp_path,
            [entry("d", kind="folder"), entry("d/f", 1), entry("g", 1)],
            *sent(1, b"1"),
            *sent(2, b"1"),
        )
        reason = "has something else in its place: a link, a folder, or no file at all"
        assert (copy.counts, copy.failed) == ((1, 1, 0), {"d": reason, "d/f": reason})
        assert copy.steps == [0, 1, 0, 1], "what cannot be written counts, too"

    def test_a_new_folder_appears_when_it_is_complete(self, tmp_path: Path) -> None:
        with ConfinedFolder(tmp_path) as confined, suppress(EOFError):
            end = ScriptedEnd({"entries": [entry("d/f", 1)]}, {"listed": True}, *sent(0, b"1"))
            receive_into(Receiver(end.frames, confined, lambda _: None, lambda _: None), confined, "")
        assert [path.name for path in tmp_path.iterdir()] == ["d"], "a file below no listed folder"
        with ConfinedFolder(tmp_path) as confined, suppress(EOFError):
            end = ScriptedEnd(
                {"entries": [entry("e", kind="folder"), entry("e/f", 1)]}, {"listed": True}, *sent(1, b"1")
            )
            receive_into(Receiver(end.frames, confined, lambda _: None, lambda _: None), confined, "")
        assert {path.name for path in tmp_path.iterdir()} == {"d", part_name("e")}

    def test_a_folder_in_the_place_of_a_file_fails_that_only(self, tmp_path: Path) -> None:
        (tmp_path / "f").mkdir()
        copy = Copy(tmp_path, [entry("f", 1), entry("g", 1)], *sent(0, b"1"), *sent(1, b"1"))
        assert (copy.counts, list(copy.failed)) == ((1, 1, 0), ["f"])
        assert (tmp_path / "f").is_dir()

    def test_a_folder_that_comes_last_arrives_too(self, tmp_path: Path) -> None:
        Copy(tmp_path, [entry("f"), entry("d", kind="folder")])
        assert (tmp_path / "d").is_dir()


class TestAFullDisk:
    @pytest.fixture(autouse=True)
    def full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing can be written: a test cannot fill a disk."""

        def fail(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(receiving, "_write", fail)

    def test_it_ends_the_copy_of_all_files_and_is_told_at_once(self, tmp_path: Path) -> None:
        entries = [entry("d", kind="folder"), entry("d/f", 1), entry("d/g", 1)]
        copy = Copy(tmp_path, entries, *sent(1, b"1"), *sent(2, b"1"))
        full = "No space left on device"
        assert copy.got[2] == {"stop": full}
        assert len(copy.got) == 4, "told once"
        assert (copy.result["fatal"], copy.failed, copy.counts) == (full, {"d/f": full}, (0, 0, 0))
        assert copy.steps == [0, 1, 0, 1]
        assert not (tmp_path / "d").exists()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_disk_that_fails_for_one_file_only_is_not_the_end(tmp_path: Path) -> None:
    (tmp_path / part_name("f")).mkdir()
    copy = Copy(tmp_path, [entry("f", 1), entry("g", 1)], *sent(0, b"1"), *sent(1, b"1"))
    assert (copy.result["fatal"], list(copy.failed), copy.counts) == ("", ["f"], (1, 1, 0))


def test_a_file_that_another_copy_writes_is_awaited_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(receiving, "time", SimpleNamespace(sleep=waits.append))
    part = tmp_path / part_name("f")
    part.write_bytes(b"123")
    with open(part, "rb") as earlier:
        fcntl.flock(earlier, fcntl.LOCK_EX)
        copy = Copy(tmp_path, [entry("f", 5), entry("g", 1)], *sent(0, b"12345", 3), *sent(1, b"1"))
    assert copy.failed == {"f": "another copy writes it at the moment"}
    assert copy.counts == (1, 1, 0)
    assert sum(waits) == pytest.approx(10, abs=0.2), "ten seconds for all files together"
    assert part.read_bytes() == b"123"


@pytest.mark.parametrize("is_done", [True, False], ids=["and moved it", "and let go"])
def test_a_file_that_another_copy_wrote_meanwhile_is_not_written_by_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    part = tmp_path / part_name("f")
    part.write_bytes(b"123")
    with open(part, "rb") as earlier:
        fcntl.flock(earlier, fcntl.LOCK_EX)

        def end(seconds: float) -> None:
            if is_done:
                part.rename(tmp_path / "f")
                part.write_bytes(b"123")
            fcntl.flock(earlier, fcntl.LOCK_UN)

        monkeypatch.setattr(receiving, "time", SimpleNamespace(sleep=end))
        copy = Copy(tmp_path, [entry("f", 5)], *sent(0, b"12345", 3))
    assert copy.failed == ({"f": "another copy writes it at the moment"} if is_done else {})


class TestEntries:
    @pytest.mark.parametrize(
        "fields",
        [
            {"kind": "link"}, {"kind": None}, {"size": 1 << 63}, {"size": -(1 << 63)}, {"mtime": 1.5},
            {"mode": "7"}, {"path": None}, {"size": None},
        ],
        ids=str,
    )  # fmt: skip
    def test_what_is_no_entry_ends_the_copy(self, tmp_path: Path, fields: dict[str, object]) -> None:
        with pytest.raises(ProtocolError, match="lists what is no file"):
            Copy(tmp_path, [entry("f", 5) | fields])

    @pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63) + 1, 0])
    def test_numbers_of_a_disk_are_taken(self, tmp_path: Path, number: int) -> None:
        assert Copy(tmp_path, [entry("f", number, mtime=number)]).failed == {}

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            (["a", "..", "b"], "leads out"), (["."], "leads out"), (["a", ""], "leads out"),
            (["/etc"], "leads out"), (["a/b"], "leads out"), (["a\0"], "leads out"), ([], "without a name"),
        ],
    )  # fmt: skip
    def test_a_path_that_no_file_below_the_folder_has_ends_the_copy(
        self, tmp_path: Path, path: list[str], text: str
    ) -> None:
        with pytest.raises(ProtocolError, match=text):
            Copy(tmp_path, [entry("x") | {"path": path}])

    def test_the_list_has_an_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(receiving, "MOST_ENTRIES", 2)
        assert Copy(tmp_path, [entry("a"), entry("b")]).failed == {}
        with pytest.raises(ProtocolError, match="too many files"):
            Copy(tmp_path, [entry("a"), entry("b"), entry("c")])


@pytest.mark.parametrize("name", ["f", "ü", "a" * 230, "ä" * 115])
def test_the_name_of_a_part_is_hidden_and_tells_the_file(name: str) -> None:
    assert part_name(name) == f".{name}.tpuctl-part"


@pytest.mark.parametrize("name", ["a" * 231, "ä" * 116])
def test_a_part_of_a_file_with_a_long_name_fits_on_a_disk(tmp_path: Path, name: str) -> None:
    assert part_name(name) == f".{digest(name.encode())}.tpuctl-part"
    (tmp_path / part_name("a" * 230)).touch()


class TestDestination:
    def test_a_folder_that_is_here_takes_the_copy_under_its_name(self, tmp_path: Path) -> None:
        assert destination(str(tmp_path), is_folder=False) == (tmp_path, "")

    def test_what_is_not_here_is_the_name_of_the_copy(self, tmp_path: Path) -> None:
        assert destination(f"{tmp_path}/a/b/c", is_folder=False) == (tmp_path / "a/b", "c")
        assert [path.name for path in (tmp_path / "a/b").iterdir()] == []

    def test_a_folder_is_made_if_it_must_be_one(self, tmp_path: Path) -> None:
        for _ in range(2):
            assert destination(f"{tmp_path}/a/b", is_folder=True) == (tmp_path / "a/b", "")
        assert (tmp_path / "a/b").is_dir()

    def test_a_file_that_is_here_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "f").touch()
        assert destination(f"{tmp_path}/f", is_folder=False) == (tmp_path, "f")
        with pytest.raises(FileExistsError):
            destination(f"{tmp_path}/f", is_folder=True)
