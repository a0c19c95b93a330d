"""What becomes of files that another end lists and sends, whole or cut, and what a hostile one achieves."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copier.streams import LAST, archive, copied, entry, member, note, played, received, stream
from tpuctl.copier import receiving, sending
from tpuctl.copier.receiving import LONGEST_NAME, PART, Receiver, destination
from tpuctl.copier.sending import LONGEST_LINE, PIECE, Incoming, Item, line, lines, list_tree
from tpuctl.flows.remote.copy import MALFORMED, _refusal
from tpuctl.local.confined_folder import ConfinedFolder

TIME = 1_700_000_000_123_456_789
FULL = "No space left on device"


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a file, an empty one, an empty folder and a name that needs all of a pax header."""
    top = tmp_path / "tree"
    (top / "d/empty").mkdir(parents=True)
    (top / "d/f").write_bytes(os.urandom(3 * PIECE + 1))
    (top / "nothing").touch()
    (top / f"{'ü' * 100}\n\udcff").write_text("x")
    os.utime(top / "d/f", ns=(TIME, TIME))
    (top / "d/f").chmod(0o777)
    (top / "d").chmod(0o500)
    return top


def items(top: Path, name: str = "tree") -> list[Item]:
    return list(list_tree(str(top), name))


class TestCopy:
    def test_a_folder_arrives_with_modes_and_times(self, here: Path, tree: Path) -> None:
        reports: list[tuple[int, int]] = []
        receiver = copied(items(tree), here, progress=lambda *report: reports.append(report))
        size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
        assert (receiver.files, receiver.bytes, receiver.kept, receiver.left_out) == (3, size, 0, [])
        assert names(here) == {"tree"} | {f"tree/{name}" for name in names(tree)}
        assert (here / "tree/d/f").read_bytes() == (tree / "d/f").read_bytes()
        status = (here / "tree/d/f").stat()
        assert stat.S_IMODE(status.st_mode) == 0o755, "nobody else may write"
        assert abs(status.st_mtime_ns - TIME) < 1000
        assert stat.S_IMODE((here / "tree/d").stat().st_mode) == 0o700, "the owner can use a folder"
        assert reports[-1] == (size, size)

    def test_what_is_here_is_not_sent_again(self, here: Path, tree: Path) -> None:
        copied(items(tree), here)
        (here / "tree/nothing").chmod(0o700)
        before = (here / "tree/d/f").stat().st_ino
        receiver = copied(items(tree), here)
        assert (receiver.files, receiver.kept) == (3, 2)
        assert (here / "tree/d/f").stat().st_ino == before
        assert stat.S_IMODE((here / "tree/nothing").stat().st_mode) == 0o644

    @pytest.mark.parametrize("change", ["size", "time"])
    def test_a_file_that_is_another_is_replaced(self, here: Path, tree: Path, change: str) -> None:
        copied(items(tree), here)
        file = here / "tree/d/f"
        os.truncate(file, 5) if change == "size" else os.utime(file, ns=(TIME, TIME + 2000))
        if change == "size":
            os.utime(file, ns=(TIME, TIME))
        assert copied(items(tree), here).kept == 2
        assert file.read_bytes() == (tree / "d/f").read_bytes()

    def test_the_only_top_has_the_name_that_is_typed(self, here: Path, tree: Path) -> None:
        copied(items(tree), here, "new")
        assert {name.split("/")[0] for name in names(here)} == {"new"}
        copied(items(tree / "d/f", "f"), here, "file")
        assert (here / "file").is_file()

    def test_a_file_that_cannot_be_read_or_changes_is_left_out(self, here: Path, tmp_path: Path) -> None:
        for name in ("a", "b", "c", "d"):
            (tmp_path / name).write_bytes(b"1" * 1000)
        listed = [item for name in "abcd" for item in items(tmp_path / name, name)]
        (tmp_path / "a").unlink()
        (tmp_path / "b").write_bytes(b"2")
        (tmp_path / "c").write_bytes(b"3" * 1001)
        receiver = copied(listed, here)
        assert receiver.left_out == [
            ("a", "No such file or directory"), ("b", "it changed while it was copied"),
            ("c", "it changed while it was copied"),
        ]  # fmt: skip
        assert (receiver.files, names(here)) == (1, {"d"})

    def test_what_cannot_be_placed_is_left_out_and_the_rest_arrives(self, here: Path, tree: Path) -> None:
        (here / "tree/nothing").mkdir(parents=True)
        (here / "tree/d").touch()
        receiver = copied(items(tree), here)
        reason = "has something else in its place: a link, a folder, or no file at all"
        assert set(receiver.left_out) == {
            (f"tree/{name}", reason) for name in ("nothing", "d", "d/f", "d/empty")
        }
        assert receiver.files == 1

    def test_a_link_in_the_destination_is_replaced_and_none_is_followed(
        self, here: Path, tree: Path, tmp_path: Path
    ) -> None:
        (here / "tree").mkdir()
        (tmp_path / "other").mkdir()
        (tmp_path / "mine").write_text("mine")
        (here / "tree/nothing").symlink_to(tmp_path / "mine")
        (here / "tree/d").symlink_to(tmp_path / "other")
        copied(items(tree), here)
        assert (tmp_path / "mine").read_text() == "mine"
        assert list((tmp_path / "other").iterdir()) == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
    def test_a_full_disk_ends_the_copy_and_leaves_nothing_half(
        self, here: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(receiving.Receiver, "_write", fail)  # a test cannot fill a disk
        with pytest.raises(OSError, match=os.strerror(number)):
            received(here, [entry("a"), entry("b")], archive(member("a"), member("b"), LAST))
        assert names(here) == set()


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([4 * PIECE - 2000], [131_072, 360_358, 131_072, 131_072, 131_072, 143_884]),
        ([PIECE - 1024, PIECE, 2 * PIECE], [522_303]),
        ([PIECE - 512, 2 * PIECE + 1], [84_217, 270_496, 33_441, 131_072, 131_072, 131_072]),
        ([PIECE - 512, PIECE - 1024, 3 * PIECE - 1], [262_143, 262_143, 335_330, 368_124]),
        ([1, 0, 8 * PIECE], [1] * 512),
    ],
)
def test_what_is_announced_is_never_too_much(here: Path, sizes: list[int], pieces: list[int]) -> None:
    """Two buffers read ahead, more or less of it as the pieces come: these come at bad moments."""
    listed = b"".join(entry(f"f{index}", size) for index, size in enumerate(sizes)) + line("end")
    sent = io.BytesIO(archive(*(member(f"f{index}", bytes(size)) for index, size in enumerate(sizes)), LAST))
    with ConfinedFolder(here) as confined:
        receiver = Receiver(confined, "")
        _receive(receiver, played(listed, *map(sent.read, pieces), sent.read()))
    assert receiver.bytes == sum(sizes)


class TestACutStream:
    def test_each_cut_is_noticed_and_leaves_no_half_file(self, here: Path) -> None:
        listed = [entry("a", 600), entry("d", 0, kind="folder"), entry("d/b", 600)]
        folder = member("d", b"", type=tarfile.DIRTYPE)
        whole = archive(member("a", b"1" * 600), folder, member("d/b", b"2" * 600), LAST)
        for size in range(0, whole.index(b"note\0") + 512, 128):
            (top := here / str(size)).mkdir()
            with pytest.raises(EOFError):
                received(top, listed, whole[:size])
            found = {path.read_bytes() for path in top.rglob("*") if path.is_file()}
            assert found <= {b"1" * 600, b"2" * 600}
            assert not list(top.rglob(f"{PART}-*"))
            assert not (top / "d").exists(), "a new folder appears when it is complete"
        (here / "whole").mkdir()
        received(here / "whole", listed, whole)
        assert names(here / "whole") == {"a", "d", "d/b"}

    def test_a_file_is_not_there_before_the_next_header_says_that_it_is_whole(self, here: Path) -> None:
        sent = archive(member("a"), note("it changed"), LAST)
        receiver, _ = received(here, [entry("a")], sent)
        assert (receiver.left_out, names(here)) == ([("a", "it changed")], set())
        with pytest.raises(EOFError):
            received(here, [entry("a")], archive(member("a")))
        assert names(here) == set()

    def test_a_file_that_is_missing_is_noticed(self, here: Path) -> None:
        with pytest.raises(EOFError):
            received(here, [entry("a"), entry("b")], archive(member("a"), LAST))


def sparse() -> bytes:
    info, _ = member("data", b"")
    info.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
        "GNU.sparse.size": str(1 << 30),
    }  # fmt: skip
    return archive((info, b""), LAST)


def special(kind: bytes) -> bytes:
    return archive(member("data", b"", type=kind, linkname="/etc/passwd"), LAST)


def shared_header() -> bytes:
    """Return a pax header that counts for all that follow: readers keep what such headers say."""
    return tarfile.TarInfo.create_pax_global_header({"comment": "x"})


DATA = [entry("data")]
LONG = "n" * 5000
ATTACKS: dict[str, tuple[list[bytes], bytes]] = {
    "20: a long name in the list": ([entry(LONG)], b""),
    "20: a long name in the archive": (DATA, archive(member("data/" + "n/" * 2500), LAST)),
    "20: a line without an end": ([b"[" + b" " * LONGEST_LINE], b""),
    "20: a pax header of 1 MB": (
        DATA, archive(member("data", pax_headers={"comment": "x" * (1 << 20)}), LAST)
    ),
    "25: a file that was not listed": (DATA, archive(member("data"), member("data"), LAST)),
    "25: a name that was not requested": (DATA, archive(member(".bashrc"), LAST)),
    "25: a name that programs obey": (DATA, archive(member("data/.git/config"), LAST)),
    "27: a folder of which nothing was listed": (
        DATA, archive(member("data", b"", type=b"5"), *[member("data")] * 2)
    ),
    "28: folders of JSON": ([b"[" * 60_000 + b"\n"], b""),
    "29: a number of 5,000 digits": ([b'["file", "data", ' + b"9" * 5000 + b", 0, 0]\n"], b""),
    "29: a size that is none": ([entry("data", float("nan"))], b""),
    "29: an endless size": ([entry("data", float("inf"))], b""),
    "29: a size below 0": ([entry("data", -1)], b""),
    "29: a size that is a text": ([entry("data", "1")], b""),
    "29: a time that is none": (DATA, archive(member("data", pax_headers={"mtime": "nan"}), LAST)),
    "29: an endless time": (DATA, archive(member("data", pax_headers={"mtime": "inf"}), LAST)),
    "30: more bytes than were announced": (DATA, archive(member("data", b"xx"), LAST)),
    "a path above": ([entry("../x")], b""),
    "a path above, in the archive": (DATA, archive(member("data/../../x"), LAST)),
    "an absolute path": ([entry("/x")], b""),
    "an absolute path, in the archive": (DATA, archive(member("/x"), LAST)),
    "a path without a name": ([entry("")], b""),
    "a name that is none": ([entry("a\0b")], b""),
    "a symbolic link": (DATA, special(tarfile.SYMTYPE)),
    "a hard link": (DATA, special(tarfile.LNKTYPE)),
    "a device": (DATA, special(tarfile.CHRTYPE)),
    "a pipe": (DATA, special(tarfile.FIFOTYPE)),
    "a sparse file": ([entry("data", 1 << 30)], sparse()),
    "another record": ([line("file")], b""),
    "no record": ([b"Last login: Thursday\n"], b""),
    "a record of another type": ([b"7\n"], b""),
    "no archive": (DATA, b"Last login: Thursday" * 100),
    "a header that counts for all that follow": (DATA, shared_header() + archive(member("data"), LAST)),
    "nothing after a note": (DATA, archive(note("no"), LAST)),
}  # fmt: skip


class TestHostileHost:
    """What a host sends is input from a stranger: its end is played here. The numbers are those of a list."""

    @pytest.mark.parametrize("attack", ATTACKS)
    def test_an_attack_ends_the_copy_and_leaves_nothing(self, here: Path, attack: str) -> None:
        listed, sent = ATTACKS[attack]
        with pytest.raises((*MALFORMED, EOFError)):
            received(here, listed, sent, _refusal(["data"]))
        assert names(here.parent) <= {"here", "here/data"}
        assert not (here / "data").is_file() or "not listed" in attack, "only what was requested"

    @pytest.mark.parametrize(
        "name",
        [
            ".bashrc", "other", "data/.git/config", "data/.GIT/x", "data/GIT~1/x", "data/.g\u200cit/x",
            "data/.git./x", "data/HEAD", "data/tpuctl.toml", "data\\x", "data/a\x1b", "data/\udcff",
        ],
    )  # fmt: skip
    def test_a_name_that_was_not_requested_or_is_obeyed_is_left_out(self, here: Path, name: str) -> None:
        """Attacks 23 and 31."""
        receiver, flags = received(here, [entry(name)], archive(LAST), _refusal(["data"]))
        assert (flags, receiver.files, [path for path, _ in receiver.left_out]) == (b"0", 0, [name])
        assert names(here) == set()

    @pytest.mark.parametrize("mode", [0o4777, 0o6777, 0o1777])
    def test_bits_for_others_are_not_kept(self, here: Path, mode: int) -> None:
        """Attack 24."""
        received(here, DATA, archive(member("data", mode=mode), LAST))
        assert stat.S_IMODE((here / "data").stat().st_mode) == 0o755

    def test_folders_in_folders_and_a_file_as_folder_are_left_out_or_one_error(self, here: Path) -> None:
        """Attacks 26 and 27."""
        deep = "/".join(["data", *["a"] * 400])
        listed = [entry("data"), entry("data/x"), entry(deep)]
        receiver, _ = received(here, listed, archive(member("data"), member("data/x"), member(deep), LAST))
        assert (receiver.files, [name for name, _ in receiver.left_out]) == (1, ["data/x", deep])

    def test_a_list_takes_a_byte_for_each_file(self, here: Path) -> None:
        """Attack 19."""
        count = 1_000
        lines_of = (entry(f"data/{index}") for index in range(count))
        end = iter([line("end")])
        with ConfinedFolder(here) as confined:
            receiver = Receiver(confined, "")
            incoming = stream(lambda: next(lines_of, b"") or next(end, b""))
            tracemalloc.start()
            try:
                assert receiver.choose(lines(incoming)) == b"1" * count
                assert tracemalloc.get_traced_memory()[1] < 2 * PIECE + 10 * count
            finally:
                tracemalloc.stop()

    def test_an_archive_takes_no_memory_for_each_file(self, here: Path) -> None:
        """Attack 19."""

        def peak(count: int) -> int:
            sent = archive(*[member("data", bytes(4096))] * count, LAST)
            tracemalloc.start()
            try:
                received(here, [entry("data", 4096)] * count, sent)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                (here / "data").unlink()

        before = peak(150)  # more than the buffers have
        assert peak(350) - before < 200 * 100

    @pytest.mark.parametrize(
        "kind",
        [
            "lines", "left out", "a line", "a pax header", "a pax header after a folder with a size",
            "zeros after the last file",
        ],
    )  # fmt: skip
    def test_a_stream_without_end_is_left(
        self, here: Path, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Attacks 19, 20 and 30."""
        monkeypatch.setattr(sending, "MOST_LISTED", 1 << 22)
        monkeypatch.setattr(receiving, "MOST_LEFT_OUT", 1000)
        taken = 0

        def flood(head: bytes, piece: bytes) -> Iterator[bytes]:
            nonlocal taken
            yield head
            while taken < 1 << 26:
                taken += len(piece)
                yield piece

        header = tarfile.TarInfo("pax")
        header.type, header.size = tarfile.XHDTYPE, 1 << 40
        before = b"".join(DATA) + line("end")
        folder = tarfile.TarInfo("data")
        folder.type, folder.size = tarfile.DIRTYPE, 1 << 40
        large = entry("data", 0, kind="folder") + entry("data/x", 1 << 40) + line("end")
        pieces = {
            "lines": (entry("data"), entry("data/" + "n" * (LONGEST_NAME - 5))),
            "left out": (entry("data"), entry("data/x") * 1000),
            "a line": (b'["file", "', b"x" * PIECE),
            "a pax header": (before + header.tobuf(tarfile.GNU_FORMAT), b"x" * PIECE),
            "a pax header after a folder with a size": (
                large + b"".join(info.tobuf(tarfile.GNU_FORMAT) for info in (folder, header)),
                b"x" * PIECE,
            ),
            "zeros after the last file": (before + archive(member("data"))[:1024], bytes(PIECE)),
        }
        sent = flood(*pieces[kind])
        incoming = stream(lambda: next(sent, b""))
        with ConfinedFolder(here) as confined:
            receiver = Receiver(confined, "", refuse=lambda parts: "no" if kind == "left out" else None)
            with pytest.raises((ValueError, EOFError)):
                _receive(receiver, incoming)
        limits = {"lines": sending.MOST_LISTED + PIECE, "left out": 200 * receiving.MOST_LEFT_OUT}
        assert taken <= limits.get(kind, 4 * PIECE)

    def test_what_the_filter_of_tarfile_refuses_is_refused(self, here: Path) -> None:
        """Hosts with a Python of before 3.8.17, 3.9.17 and 3.10.12 have no such filter."""
        refused = 0
        for listed, sent in ATTACKS.values():
            try:
                with tarfile.open(mode="r|", fileobj=played(sent)) as tar:
                    for info in tar:
                        tarfile.data_filter(info, str(here))
            except tarfile.FilterError:
                refused += 1
                with pytest.raises(MALFORMED):
                    received(here, listed, sent, _refusal(["data"]))
            except tarfile.TarError:
                pass
        assert refused >= 3


def _receive(receiver: Receiver, incoming: io.BufferedReader[Incoming]) -> None:
    receiver.choose(lines(incoming))
    receiver.receive(incoming)


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
