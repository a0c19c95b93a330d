"""What is listed and sent of files, record by record."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.copier.wires import ScriptedEnd
from tpuctl.copier.sending import BATCH, PIECE, PULSE, Sender, begins_with, list_tree, top_name

TIME = 1_700_000_000_123_456_789
DONE = {"done": True, "files": 1}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listed(top: Path, name: str) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, str]]]:
    """What is listed below a folder, and what is left out with the reason."""
    skipped: list[tuple[str, str]] = []
    return list(list_tree(str(top), name, lambda *skip: skipped.append(skip))), skipped


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("f", "f"), ("a/f", "f"), ("/a/folder/", "folder"), ("folder//", "folder"), ("folder/.", ""),
        (".", ""), ("", ""), ("..", ""), ("a/..", ""), ("/", ""), (".hidden", ".hidden"), ("a/...", "..."),
    ],
)  # fmt: skip
def test_a_copy_has_the_last_name_of_a_path(path: str, name: str) -> None:
    assert top_name(path) == name


class TestListing:
    def test_a_file_has_its_size_mode_and_time(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"12345")
        (tmp_path / "f").chmod(0o4750)
        os.utime(tmp_path / "f", ns=(0, TIME))
        entry = {"kind": "file", "path": ["g"], "size": 5, "mode": 0o750, "mtime": TIME}
        assert listed(tmp_path / "f", "g") == ([(str(tmp_path / "f"), entry)], [])

    def test_a_folder_comes_before_what_is_in_it_by_name(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        (top / "b").mkdir(parents=True)
        for name in ("c", "b/f", "a"):
            (top / name).touch()
        items, _ = listed(top, "copy")
        assert [(entry["kind"], "/".join(entry["path"])) for _, entry in items] == [
            ("folder", "copy"), ("file", "copy/a"), ("folder", "copy/b"), ("file", "copy/b/f"),
            ("file", "copy/c"),
        ]  # fmt: skip
        assert [entry["size"] for _, entry in items] == [0] * 5
        assert [path for path, _ in items] == [str(top / name) for name in ("", "a", "b", "b/f", "c")]

    def test_contents_have_no_folder_above_them(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d/f").touch()
        assert [entry["path"] for _, entry in listed(tmp_path, "")[0]] == [["d"], ["d", "f"]]

    def test_links_are_followed_within_the_folder_only(self, tmp_path: Path) -> None:
        top, outside = tmp_path / "top", tmp_path / "top-secret"
        for folder in (top / "d", outside):
            folder.mkdir(parents=True)
            (folder / "f").touch()
        targets = {"inside": top / "d", "file": top / "d/f", "out": outside, "around": top, "nothing": "none"}
        for name, target in targets.items():
            (top / name).symlink_to(target)
        (top / "d/up").symlink_to(top / "d")
        items, skipped = listed(top, "t")
        paths = [("/".join(entry["path"]), entry["kind"]) for _, entry in items]
        assert paths == [
            ("t", "folder"), ("t/d", "folder"), ("t/d/f", "file"), ("t/file", "file"),
            ("t/inside", "folder"), ("t/inside/f", "file"),
        ]  # fmt: skip
        around = "is a link that leads out of the folder, or around in it"
        assert skipped == [
            (str(top / "around"), around), (str(top / "d/up"), around), (str(top / "d/up"), around),
            (str(top / "nothing"), "is a link to nothing"), (str(top / "out"), around),
        ]  # fmt: skip

    def test_folders_in_each_other_without_end_are_left_out(self, tmp_path: Path) -> None:
        folder = tmp_path / "top"
        for _ in range(600):
            folder.mkdir()
            folder /= "a"
        items, ((_, reason),) = listed(tmp_path / "top", "copy")
        assert (len(items), reason) == (201, "lies in more than 200 folders")

    def test_the_top_itself_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        (tmp_path / "link").symlink_to("f")
        [(path, entry)], _ = listed(tmp_path / "link", "link")
        assert (path, entry["path"], entry["size"]) == (str(tmp_path / "f"), ["link"], 1)

    def test_what_is_no_file_or_is_not_there_is_left_out_with_the_reason(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert listed(tmp_path, "t")[1] == [(str(tmp_path / "pipe"), "is no file and no folder")]
        assert listed(tmp_path / "none", "t") == ([], [(str(tmp_path / "none"), "No such file or directory")])


class TestSending:
    def send(
        self, tmp_path: Path, content: dict[str, bytes], *answers: dict[str, Any], stops: int = -1
    ) -> tuple[list[Any], list[int], dict[str, Any]]:
        """Send files of some content to an end that answers; return what that got, the steps and the result.

        `stops`: after how many questions whether the other end says something it does.
        """
        items = []
        for name, data in content.items():
            (tmp_path / name).write_bytes(data)
            items += listed(tmp_path / name, name)[0]
        end, steps = ScriptedEnd(*answers), list[int]()
        questions = iter(range(1000))
        result = Sender(end.frames, items, steps.append, lambda: next(questions) == stops).send()
        return end.got, steps, result

    def test_a_file_that_is_not_there_is_sent_in_pieces(self, tmp_path: Path) -> None:
        data = os.urandom(PIECE + 1)
        got, steps, result = self.send(
            tmp_path, {"f": data}, {"had": [[0, 0, ""]]}, {"go": True}, {"kept": 0}, DONE
        )
        assert got[1:] == [
            {"listed": True}, {"begin": 0, "offset": 0}, data[:PIECE], data[PIECE:],
            {"sum": digest(data), "file": 0}, {"sent": True},
        ]  # fmt: skip
        assert [entry["path"] for entry in got[0]["entries"]] == [["f"]]
        assert (steps, result) == ([0, PIECE, 1], DONE)

    def test_a_part_that_begins_like_the_file_is_completed(self, tmp_path: Path) -> None:
        got, steps, _ = self.send(
            tmp_path, {"f": b"12345"}, {"had": [[0, 3, digest(b"123")]]}, {"go": True}, DONE
        )
        assert got[2:] == [
            {"alive": True}, {"begin": 0, "offset": 3}, b"45",
            {"sum": digest(b"12345"), "file": 0}, {"sent": True},
        ]  # fmt: skip
        assert steps == [3, 2]

    def test_a_part_of_something_else_is_sent_from_the_start(self, tmp_path: Path) -> None:
        got, steps, _ = self.send(
            tmp_path, {"f": b"12345"}, {"had": [[0, 3, digest(b"xyz")]]}, {"go": True}, DONE
        )
        assert got[2:] == [
            {"alive": True}, {"begin": 0, "offset": 0}, b"12345", {"sum": digest(b"12345"), "file": 0},
            {"sent": True},
        ]  # fmt: skip
        assert steps == [0, 5]

    def test_only_files_that_are_requested_are_sent(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        items, _ = listed(tmp_path / "d", "d")
        (tmp_path / "f").touch()
        items += listed(tmp_path / "f", "f")[0] + listed(tmp_path / "f", "g")[0]
        end = ScriptedEnd({"had": [[2, 0, ""], [0, 0, ""]]}, {"go": True}, DONE)
        Sender(end.frames, items, lambda _: None, lambda: False).send()
        assert [item["begin"] for item in end.got if isinstance(item, dict) and "begin" in item] == [2]

    def test_a_file_that_cannot_be_read_is_named_and_the_next_is_sent(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        items = listed(tmp_path / "f", "f")[0]
        items = [(str(tmp_path / "none"), items[0][1]), *items]
        end = ScriptedEnd({"had": [[0, 0, ""], [1, 0, ""]]}, {"go": True}, DONE)
        Sender(end.frames, items, lambda _: None, lambda: False).send()
        assert end.got[2:] == [
            {"failed": "No such file or directory", "file": 0},
            {"begin": 1, "offset": 0}, b"x", {"sum": digest(b"x"), "file": 1}, {"sent": True},
        ]  # fmt: skip

    def test_a_list_is_sent_in_batches(self, tmp_path: Path) -> None:
        (tmp_path / "f").touch()
        items = listed(tmp_path / "f", "f")[0] * (BATCH + 1)
        end = ScriptedEnd({"go": True}, DONE)
        Sender(end.frames, items, lambda _: None, lambda: False).send()
        assert [len(item.get("entries", ())) for item in end.got] == [BATCH, 1, 0, 0]
        assert end.got[2:] == [{"listed": True}, {"sent": True}]

    def test_an_end_that_takes_nothing_has_the_last_word(self, tmp_path: Path) -> None:
        failed = {"done": True, "fatal": "read-only"}
        got, _, result = self.send(tmp_path, {"f": b"x"}, {"had": [[0, 0, ""]]}, failed)
        assert (got[-1], result) == ({"listed": True}, failed)

    def test_an_end_that_takes_no_more_gets_no_more(self, tmp_path: Path) -> None:
        content = {"f": b"x" * (PIECE + 1), "g": b"y"}
        answers = [{"had": [[0, 0, ""], [1, 0, ""]]}, {"go": True}, {"stop": "full"}, DONE]
        got, _, result = self.send(tmp_path, content, *answers, stops=1)
        assert [item for item in got if isinstance(item, bytes)] == [b"x" * PIECE]
        assert got[-2:] == [{"sum": digest(b"x" * PIECE), "file": 0}, {"sent": True}]
        assert result == DONE


class TestBegin:
    @pytest.mark.parametrize(
        ("size", "expected"), [(0, b""), (1, b"1"), (3, b"123")], ids=["nothing", "a byte", "all"]
    )
    def test_the_first_bytes_are_compared(self, tmp_path: Path, size: int, expected: bytes) -> None:
        (tmp_path / "f").write_bytes(b"123")
        content = hashlib.sha256()
        with open(tmp_path / "f", "rb") as stream:
            assert begins_with(stream, content, size, digest(expected))
            assert stream.tell() == size
        assert content.hexdigest() == digest(expected)

    @pytest.mark.parametrize(("size", "start"), [(2, b"13"), (4, b"123")], ids=["other", "longer"])
    def test_other_bytes_and_a_shorter_file_are_not_the_same(
        self, tmp_path: Path, size: int, start: bytes
    ) -> None:
        (tmp_path / "f").write_bytes(b"123")
        with open(tmp_path / "f", "rb") as stream:
            assert not begins_with(stream, hashlib.sha256(), size, digest(start))

    def test_signs_of_life_come_now_and_then(self, tmp_path: Path) -> None:
        size = 2 * PULSE
        with open(tmp_path / "sparse", "wb") as stream:
            stream.truncate(size)
        pulses: list[int] = []
        with open(tmp_path / "sparse", "rb") as stream:
            begins_with(stream, _Sum(), size, "", lambda: pulses.append(stream.tell()))
        assert pulses == [PULSE, 2 * PULSE]


class _Sum:
    """A digest that takes no time."""

    def update(self, data: bytes) -> None:
        """Take nothing."""

    def hexdigest(self) -> str:
        """Return nothing."""
        return ""
