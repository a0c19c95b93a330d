"""What counts as use of a host."""

from __future__ import annotations

import fcntl
import glob
import os
import struct
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpuctl.keeper import activity
from tpuctl.keeper.activity import UTMP_ENTRY, Activity


def process(root: Path, pid: int, title: bytes, *files: str) -> None:
    """Show a process in the host's /proc, with open files."""
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(title)
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def terminal(user: bytes, host: bytes, *, kind: int = 7, pid: int | None = None) -> bytes:
    """Return an entry of utmp."""
    return UTMP_ENTRY.pack(
        kind, os.getpid() if pid is None else pid, b"pts/0", b"ts/0", user, host, 0, 0, 0, 0, 0, b"", b""
    )


def reasons(root: Path) -> list[str]:
    return list(Activity(str(root), str(root / "home")).reasons())


def test_an_entry_of_utmp_has_the_size_that_linux_gives_it() -> None:
    assert UTMP_ENTRY.size == 384
    assert struct.calcsize("i") == 4


def test_an_empty_host_is_idle(tmp_path: Path) -> None:
    process(tmp_path, 1, b"/sbin/init\0", "/dev/null", "/devices/accel0", "/dev/vfio-pci", "/srv/dev/accel0")
    assert reasons(tmp_path) == []


@pytest.mark.parametrize("device", ["/dev/accel0", "/dev/accel3", "/dev/vfio/0", "/dev/vfio/vfio"])
def test_an_open_chip_is_use(tmp_path: Path, device: str) -> None:
    process(tmp_path, 7, b"python3\0train.py\0", "/dev/null", device)
    assert reasons(tmp_path) == ["process 7 holds TPU chips"]


@pytest.mark.parametrize(
    ("title", "user"),
    [
        (b"sshd: ada@pts/0", "ada"),
        (b"sshd: ada@notty\0\0", "ada"),
        (b"sshd-session: sa_117@notty", "sa_117"),
        (b"sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", ""),
        (b"sshd: ada [priv]", ""),
        (b"sshd: [accepted]", ""),
        (b"sshd: unknown [preauth]", ""),
        (b"vim\0sshd: ada@pts/0", ""),
    ],
)
def test_a_login_is_known_by_the_title_of_sshd(tmp_path: Path, title: bytes, user: str) -> None:
    process(tmp_path, 7, title)
    assert reasons(tmp_path) == ([f"{user} is logged in"] if user else [])


@pytest.mark.parametrize(
    ("entry", "is_login"),
    [
        (terminal(b"ada", b"203.0.113.9"), True),
        (terminal(b"ada", b""), True),
        (terminal(b"ada", b"tmux(811).%0"), False),
        (terminal(b"ada", b":pts/0:S.0"), False),
        (terminal(b"ada", b"203.0.113.9", kind=8), False),
        (terminal(b"ada", b"203.0.113.9", pid=2**31 - 1), False),
        (terminal(b"ada", b"203.0.113.9")[:200], False),
    ],
)
def test_a_terminal_is_use_but_no_window_of_tmux_and_no_dead_session(
    tmp_path: Path, entry: bytes, is_login: bool
) -> None:
    (tmp_path / "var/run").mkdir(parents=True)
    (tmp_path / "var/run/utmp").write_bytes(terminal(b"reboot", b"", kind=2) + entry)
    assert reasons(tmp_path) == (["ada is logged in"] if is_login else [])


@pytest.mark.parametrize("name", ["lock", "script.lock"])
def test_a_run_is_use_as_long_as_its_supervisor_or_script_holds_a_lock(tmp_path: Path, name: str) -> None:
    lock = tmp_path / "home/.tpuctl/runs/digits/2" / name
    lock.parent.mkdir(parents=True)
    with lock.with_name("lock").open("wb"):
        pass
    with lock.open("wb") as held:
        assert reasons(tmp_path) == []
        fcntl.flock(held, fcntl.LOCK_EX)
        assert reasons(tmp_path) == ["run digits, attempt 2"]
    assert reasons(tmp_path) == []


def test_the_host_itself_has_the_homes_of_its_accounts_and_those_in_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(pattern: str) -> list[str]:
        return glob.glob(str(tmp_path / "home/*") if pattern == "/home/*" else pattern)

    accounts = [SimpleNamespace(pw_dir=str(tmp_path / "srv/ada"))]
    monkeypatch.setattr(activity, "glob", SimpleNamespace(glob=found, iglob=found, escape=glob.escape))
    monkeypatch.setattr(activity, "pwd", SimpleNamespace(getpwall=lambda: accounts))
    for home, run in (("srv/ada", "one"), ("home/x[1]", "two"), ("other", "three"), ("given", "four")):
        (tmp_path / home / ".tpuctl/runs" / run / "1").mkdir(parents=True)
        (tmp_path / home / ".tpuctl/runs" / run / "1/lock").touch()
    with ExitStack() as held:
        for path in tmp_path.rglob("lock"):
            fcntl.flock(held.enter_context(path.open("wb")), fcntl.LOCK_EX)
        runs = [text for text in Activity("/", str(tmp_path / "given")).reasons() if text.startswith("run ")]
    assert runs == ["run four, attempt 1", "run two, attempt 1", "run one, attempt 1"]
