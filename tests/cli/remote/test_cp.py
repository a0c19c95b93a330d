"""`tpuctl cp`: files to and from every host, complete or not there, resumed, and within the folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.copier import receiving
from tpuctl.copier.frames import Frames, ProtocolError
from tpuctl.copier.host import Input
from tpuctl.copier.receiving import Receiver, part_name, receive_into
from tpuctl.copier.sending import Sender
from tpuctl.flows.remote import copy as flow
from tpuctl.local.confined_folder import ConfinedFolder

Call = Callable[..., CommandResult]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with what folders have."""
    top = tmp_path / "tree"
    (top / "deep/empty").mkdir(parents=True)
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "deep/ü b'\"$x").write_bytes(b"\0\xff\r\n" * 50_000)
    (top / "deep/nothing").touch()
    (top / "deep/nothing").chmod(0o600)
    os.utime(top / "run.sh", ns=(10**18, 10**18))
    (top / "again").symlink_to("run.sh")
    return top


def files(top: Path) -> dict[str, tuple[str, int]]:
    """Path -> digest and mode of each file below a folder."""
    return {
        path.relative_to(top).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(), stat.S_IMODE(path.stat().st_mode)
        )
        for path in top.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.fixture
def homes(remote: RunningSimulator, command: Call) -> list[Path]:
    """The home folders of the workers of `pair`, empty."""
    out = command("exec", "pair", "--", "rm -rf -- ./* ./.[a-oq-z]*; pwd").out
    return [Path(line.split(" ", 1)[1]) for line in sorted(out.splitlines())]


class TestUpload:
    def test_a_folder_arrives_on_every_worker_with_modes_and_times(
        self, command: Call, homes: list[Path], tree: Path
    ) -> None:
        result = command("cp", "--json", str(tree), "pair:")
        assert result.code == 0, result.err
        size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
        copied = {"files": 4, "bytes": size, "kept": 0, "left_out": []}
        assert result.json == {
            "schema": 1, "node": "pair", "workers": [{"worker": 0, **copied}, {"worker": 1, **copied}],
        }  # fmt: skip
        for home in homes:
            assert files(home / "tree") == files(tree)
            assert (home / "tree/run.sh").stat().st_mtime_ns == 10**18
            assert (home / "tree/deep/empty").is_dir()
            assert not (home / "tree/again").is_symlink()

    def test_the_same_command_again_sends_nothing_that_is_there(
        self, command: Call, homes: list[Path], tree: Path
    ) -> None:
        command("cp", str(tree), "pair:")
        (homes[0] / "tree/run.sh").write_text("#!/bin/ba\n")  # as long as the other
        workers = command("cp", "--json", str(tree), "pair:").json["workers"]
        # an empty file has nothing that could be kept
        assert [(worker["files"], worker["kept"]) for worker in workers] == [(4, 2), (4, 3)]
        assert files(homes[0] / "tree") == files(tree)

    @pytest.mark.parametrize(
        ("typed", "path"), [("x", "x"), ("x/", "x/run.sh"), ("a/b/x", "a/b/x"), ("~/x", "x"), ("", "run.sh")]
    )
    def test_the_destination_is_as_of_cp(
        self, command: Call, homes: list[Path], tree: Path, typed: str, path: str
    ) -> None:
        assert command("cp", str(tree / "run.sh"), f"pair@1:{typed}").code == 0
        assert (homes[1] / path).read_text() == "#!/bin/sh\n"
        assert not list(homes[0].iterdir()) or not (homes[0] / path).exists()

    def test_a_folder_has_the_name_that_is_typed_until_that_exists(
        self, command: Call, homes: list[Path], tree: Path
    ) -> None:
        for _ in range(2):
            assert command("cp", str(tree), "pair@0:named").code == 0
        assert files(homes[0] / "named/tree") == files(tree)
        assert command("cp", f"{tree}/.", "pair@0:contents").code == 0
        assert files(homes[0] / "contents") == files(tree)

    def test_a_part_is_resumed_and_a_part_of_something_else_is_not(
        self, command: Call, homes: list[Path], tmp_path: Path
    ) -> None:
        data = os.urandom(1_000_000)
        (tmp_path / "data").write_bytes(data)
        (homes[0] / part_name("data")).write_bytes(data[:700_000])
        (homes[1] / part_name("data")).write_bytes(b"x" * 700_000)
        assert command("cp", str(tmp_path / "data"), "pair:").code == 0
        assert [(home / "data").read_bytes() == data for home in homes] == [True, True]
        assert not [path for home in homes for path in home.glob("*part*")]

    def test_what_cannot_be_copied_is_named_and_the_rest_is_there(
        self, command: Call, homes: list[Path], tree: Path
    ) -> None:
        (tree / "out").symlink_to("/etc/passwd")
        (tree / "loop").symlink_to(tree)
        (tree / "broken").symlink_to("nowhere")
        os.mkfifo(tree / "pipe")
        result = command("cp", "--json", str(tree), "pair@0:")
        assert result.code == 4
        left_out = {Path(item["path"]).name: item["reason"] for item in result.json["workers"][0]["left_out"]}
        assert set(left_out) == {"out", "loop", "broken", "pipe"}
        assert left_out["out"] == "is a link that leads out of the folder, or around in it"
        assert "is a link that leads out of the folder" in result.err
        assert set(files(homes[0] / "tree")) == {"run.sh", "again", "deep/ü b'\"$x", "deep/nothing"}

    def test_a_full_disk_leaves_nothing_half(
        self, command: Call, homes: list[Path], tree: Path, faults: Callable[..., object]
    ) -> None:
        faults("disk-full", node="pair", worker="0")
        result = command("cp", "--json", str(tree), "pair:")
        assert result.code == 4
        first, second = result.json["workers"]
        assert first == {"worker": 0, "error": result.json["error"]["message"]}
        assert (second["worker"], second["files"]) == (1, 4)
        assert "what was complete by then stays" in result.err
        assert not (homes[0] / "tree").exists()

    def test_a_host_that_is_down_is_named_and_the_others_have_the_file(
        self, command: Call, homes: list[Path], tree: Path, faults: Callable[..., object]
    ) -> None:
        faults("ssh-refused", node="pair", worker="0")
        result = command("cp", str(tree), "pair:")
        assert result.code == 8
        assert "worker 0 of 'pair': it refused the connection" in result.err
        assert files(homes[1] / "tree") == files(tree)


class TestDownload:
    def test_each_worker_has_a_folder(
        self, command: Call, homes: list[Path], tree: Path, tmp_path: Path
    ) -> None:
        command("cp", str(tree), "pair:")
        for _ in range(2):
            assert command("cp", "pair:tree", str(tmp_path / "got")).code == 0
        for worker in (0, 1):
            assert files(tmp_path / f"got/worker-{worker}/tree") == files(tree)

    def test_wildcards_are_those_of_the_host(
        self, command: Call, homes: list[Path], tree: Path, tmp_path: Path
    ) -> None:
        command("cp", str(tree), "pair@1:")
        assert command("cp", "pair@1:tree/*.sh", str(tmp_path) + "/").code == 0
        assert (tmp_path / "run.sh").read_text() == "#!/bin/sh\n"
        missing = command("cp", "pair@1:tree/*.nothing", str(tmp_path))
        assert (missing.code, "has no tree/*.nothing" in missing.err) == (4, True)

    def test_one_file_has_the_name_that_is_typed(
        self, command: Call, homes: list[Path], tmp_path: Path
    ) -> None:
        (homes[0] / "f").write_text("new")
        (tmp_path / "mine").write_text("old and longer")
        assert command("cp", "pair@0:f", str(tmp_path / "mine")).code == 0
        assert (tmp_path / "mine").read_text() == "new"

    def test_folders_that_programs_obey_are_left_out(
        self, command: Call, homes: list[Path], tmp_path: Path
    ) -> None:
        for name in (".git/config", "tpuctl.toml", ".hidden"):
            (homes[0] / "project" / name).parent.mkdir(parents=True, exist_ok=True)
            (homes[0] / "project" / name).touch()
        result = command("cp", "pair@0:project", str(tmp_path) + "/")
        assert result.code == 4
        assert sorted(files(tmp_path / "project")) == [".hidden"]
        assert ".git/config: is a folder of version control; it is left out" in result.err

    def test_a_link_in_the_destination_is_not_followed(
        self, command: Call, homes: list[Path], tmp_path: Path
    ) -> None:
        (homes[0] / "d/sub").mkdir(parents=True)
        (homes[0] / "d/sub/f").write_text("x")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "d").mkdir()
        (tmp_path / "d/sub").symlink_to(tmp_path / "elsewhere")
        assert command("cp", "pair@0:d", str(tmp_path) + "/").code == 4
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_a_hosts_own_error_is_told(self, command: Call, homes: list[Path], tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        result = command("cp", "pair@0:.", str(tmp_path / "file/x"))
        assert result.code == 4
        assert f"{tmp_path}/file" in result.err


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["a", "b"], "No path is on a TPU"),
            (["pair:a", "pair:b"], "Both sides are on hosts"),
            (["pair:a", "n1:b", "."], "on several machines"),
            (["gs://b/x", "pair:"], "is a URI"),
            (["no-such-file", "pair:"], "There is no no-such-file on this machine"),
            (["pair:x"], "There is no destination"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, command: Call, arguments: list[str], text: str) -> None:
        result = command("cp", *arguments)
        assert result.code == 2
        assert text in result.err

    def test_the_dry_run_copies_nothing(self, command: Call, homes: list[Path], tree: Path) -> None:
        assert command("cp", "--dry-run", "--json", str(tree), "pair:").json["requests"] == []
        assert not (homes[0] / "tree").exists()


class TestHostileHost:
    """What a host sends is input from a stranger: its end is played here."""

    def receive(self, folder: Path, *records: object, source: str = "data") -> dict[str, object]:
        class Deaf:
            def __call__(self, data: bytes) -> None:
                """Take nothing."""

        sent = bytearray()
        ours = Frames(lambda: b"", sent.extend)
        for record in records:
            ours.send_data(record) if isinstance(record, bytes) else ours.send(record)  # type: ignore[arg-type]
        ours.flush()
        pieces = [bytes(sent)]
        frames = Frames(lambda: pieces.pop() if pieces else b"", Deaf())
        with ConfinedFolder(folder) as confined:
            receiver = Receiver(frames, confined, flow._refusal([source]), lambda _: None)
            return receive_into(receiver, confined, "")

    def entry(self, *path: str) -> dict[str, object]:
        return {"kind": "file", "path": path, "size": 1, "mode": 0o4777, "mtime": 0}

    @pytest.mark.parametrize("path", [["..", "x"], ["a/../../x"], ["", "x"], ["."], [], ["data", "..", "x"]])
    def test_a_path_that_leads_out_ends_the_copy(self, tmp_path: Path, path: list[str]) -> None:
        with pytest.raises(Exception, match=r"leads out of the folder|without a name"):
            self.receive(tmp_path, {"entries": [self.entry(*path)]}, {"listed": True})

    @pytest.mark.parametrize("path", [[".bashrc"], ["other"], ["data", ".git", "config"], ["data", "a\x1b"]])
    def test_a_name_that_was_not_requested_or_is_obeyed_is_left_out(
        self, tmp_path: Path, path: list[str]
    ) -> None:
        result = self.receive(
            tmp_path, {"entries": [self.entry(*path)]}, {"listed": True}, {"sent": True}, source="data"
        )
        assert (result["files"], len(result["failed"])) == (0, 1)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())

    def test_a_file_with_another_checksum_is_not_there(self, tmp_path: Path) -> None:
        result = self.receive(
            tmp_path, {"entries": [self.entry("data")]}, {"listed": True}, {"begin": 0, "offset": 0}, b"x",
            {"sum": "0" * 64, "file": 0}, {"sent": True},
        )  # fmt: skip
        assert result["failed"] == [("data", "it arrived with another checksum")]
        assert not list(tmp_path.iterdir())

    def test_a_file_that_is_here_is_not_written_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("x")
        result = self.receive(
            tmp_path, {"entries": [self.entry("data")]}, {"listed": True}, {"begin": 0, "offset": 1}, b"more",
            {"sum": hashlib.sha256(b"xmore").hexdigest(), "file": 0}, {"sent": True},
        )  # fmt: skip
        assert result["failed"] == [("data", "it changed while it was copied")]
        assert (tmp_path / "data").read_text() == "x"

    def test_set_user_id_is_not_kept(self, tmp_path: Path) -> None:
        self.receive(
            tmp_path, {"entries": [self.entry("data")]}, {"listed": True}, {"begin": 0, "offset": 0}, b"x",
            {"sum": hashlib.sha256(b"x").hexdigest(), "file": 0}, {"sent": True},
        )  # fmt: skip
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o755, "nor that others may write"

    @pytest.mark.parametrize(
        "record",
        [
            {"begin": 7, "offset": 0}, {"begin": [], "offset": 0}, {"begin": 0, "offset": 1}, {"begin": 0},
            {"failed": "no", "file": inf}, {"failed": "no", "file": 7},
        ],
    )  # fmt: skip
    def test_a_record_that_is_none_ends_the_copy(self, tmp_path: Path, record: dict[str, object]) -> None:
        with pytest.raises((ProtocolError, *flow.MALFORMED)):
            self.receive(tmp_path, {"entries": [self.entry("data")]}, {"listed": True}, record)

    @pytest.mark.parametrize("field", ["size", "mtime"])
    @pytest.mark.parametrize("number", [inf, 1e300, 10**300, -(10**300), None, "x"])
    def test_a_number_that_no_file_has_ends_the_copy(
        self, tmp_path: Path, field: str, number: object
    ) -> None:
        entry = self.entry("data") | {field: number}
        with pytest.raises(ProtocolError, match="lists what is no file"):
            self.receive(
                tmp_path, {"entries": [entry]}, {"listed": True}, {"begin": 0, "offset": 0}, b"x",
                {"sum": hashlib.sha256(b"x").hexdigest(), "file": 0}, {"sent": True},
            )  # fmt: skip
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("count", [inf, 1e400, None, "x"])
    def test_a_result_that_is_none_is_no_result(self, count: object) -> None:
        with pytest.raises(flow.MALFORMED):
            flow._copied("worker 0", {"files": count, "bytes": 0, "kept": 0, "failed": []}, [])

    def test_a_file_that_was_refused_is_not_taken(self, tmp_path: Path) -> None:
        entries = [self.entry("data", ".git", "config")]
        with pytest.raises(ProtocolError, match="was not requested"):
            self.receive(tmp_path, {"entries": entries}, {"listed": True}, {"begin": 0, "offset": 0}, b"x")
        assert not list(tmp_path.rglob("config"))


def test_a_file_that_changes_meanwhile_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)
    items, _ = flow.list_sources([str(tmp_path / "f")])
    sent = bytearray()
    answers = bytearray()
    Frames(lambda: b"", answers.extend).send({})
    ours = Frames(lambda: b"", answers.extend)
    ours.send({"had": [[0, 0, ""]]})
    ours.send({"go": True})
    ours.send({"done": True})
    ours.flush()
    pieces = [bytes(answers)]

    def change(size: int) -> None:
        if size:
            (tmp_path / "f").write_bytes(b"y" * 2000)

    Sender(Frames(lambda: pieces.pop(), sent.extend), items, change, lambda: False).send()
    pieces = [bytes(sent)]
    frames = Frames(lambda: pieces.pop(), sent.extend)
    records = [frames.receive() for _ in range(6)]
    assert any(isinstance(record, dict) and "changed" in str(record.get("failed")) for record in records)


def test_a_silent_sender_is_lost_to_the_host() -> None:
    """Its program holds the lock of a file, and sshd notices a laptop that is off after hours only."""
    ends = os.pipe()
    source = Input(ends[0])
    source.limit = 0.01
    os.write(ends[1], b"x")
    assert [source.read(), source.read()] == [b"x", b""]
    for end in ends:
        os.close(end)


def test_a_file_that_an_earlier_copy_writes_is_awaited_for_a_time(
    command: Call, homes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(1000)
    (homes[0] / "f").write_bytes(data)
    (tmp_path / part_name("f")).write_bytes(data[:500])
    with open(tmp_path / part_name("f"), "rb") as earlier, monkeypatch.context() as patch:
        fcntl.flock(earlier, fcntl.LOCK_EX)
        patch.setattr(receiving, "LOCK_PATIENCE", 0.2)
        result = command("cp", "pair@0:f", f"{tmp_path}/")
        assert (result.code, "another copy writes it at the moment" in result.err) == (4, True)
    assert command("cp", "pair@0:f", f"{tmp_path}/").code == 0
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize("change", ["write", "move"])
def test_what_an_earlier_copy_did_meanwhile_is_not_overlooked(tmp_path: Path, change: str) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"begin")
    with open(part, "rb+") as stream:
        status = os.stat(part)
        receiving._verify(stream.fileno(), status, 5, hashlib.sha256(b"begin"))
        stream.seek(0)
        stream.write(b"other") if change == "write" else part.rename(tmp_path / "complete")
        stream.flush()
        part.touch()
        with pytest.raises(BlockingIOError):
            receiving._verify(stream.fileno(), os.stat(part), 5, hashlib.sha256(b"begin"))
