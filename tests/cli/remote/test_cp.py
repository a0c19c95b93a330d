"""`tpuctl cp`: files to and from every host, complete or not there, and within the folder.

What is shown of a copy: the bytes of all workers, their rate, and who has all.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.remote import cp
from tpuctl.cli.remote.cp import show_bytes

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
        assert [(worker["files"], worker["kept"]) for worker in workers] == [(4, 3), (4, 4)]
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

    def test_a_host_follows_its_own_links(self, command: Call, homes: list[Path], tree: Path) -> None:
        (homes[0] / "disk").mkdir()
        (homes[0] / "data").symlink_to("disk")
        assert command("cp", f"{tree}/.", "pair@0:data").code == 0
        assert files(homes[0] / "disk") == files(tree)

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
        assert missing.code == 4
        assert "worker 1 of 'pair': tree/*.nothing: No such file or directory" in missing.err

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


Shown = Callable[[], list[str]]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A time that only the test moves."""
    made = Clock()
    monkeypatch.setattr(cp, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def test_there_is_a_line_every_ten_seconds_on_stderr(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_bytes([0]) as report:
        for now in (100.0, 109.9, 110.0, 115.0, 119.9, 120.0):
            clock.now = now
            report(0, int(now) * 1000, 200_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "110.0 kB of 200.0 kB at 11.0 kB/s",
        "120.0 kB of 200.0 kB at 6.0 kB/s",
    ]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({0: (50, 100)}, "50 B of 100 B at 5 B/s"),
        ({0: (100, 100)}, "100 B of 100 B at 10 B/s"),
        ({0: (101, 100)}, "101 B at 10 B/s"),
        ({0: (50, 100), 1: (100, 100)}, "150 B of 200 B at 15 B/s, 1 of 3 workers complete"),
        ({0: (100, 100), 1: (100, 100), 2: (0, 0)}, "200 B of 200 B at 20 B/s, 2 of 3 workers complete"),
    ],
)
def test_the_bytes_of_all_workers_are_added_up(
    clock: Clock, capsys: pytest.CaptureFixture[str], parts: dict[int, tuple[int, int]], text: str
) -> None:
    with show_bytes([0] if len(parts) == 1 else [0, 1, 2]) as report:
        *first, last = parts.items()
        for worker, (size, total) in first:
            report(worker, size, total)
        clock.now += 10
        report(last[0], *last[1])
    assert capsys.readouterr().err == f"{text}\n"
