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

from tpuctl.host.keeper import activity
from tpuctl.host.keeper.activity import UTMP_ENTRY, Activity


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
    process(tmp_path, 2, b"/agents/bin/service_agent\0", "/dev/vfio/vfio")
    assert reasons(tmp_path) == []


@pytest.mark.parametrize("device", ["/dev/accel0", "/dev/accel3", "/dev/vfio/0", "/dev/vfio/12"])
def test_an_open_chip_is_use(tmp_path: Path, device: str) -> None:
    process(tmp_path, 7, b"python3\0train.py\0", "/dev/null", device)
    assert reasons(tmp_path) == ["process 7 holds TPU chips"]


@pytest.mark.parametrize(
    "title",
    [
        b"/usr/bin/tensorflow_server\0--port=8470\0",
        b"/usr/bin/grpc_tpu_worker\0",
        b"python3\0/app/grpc_tpu_worker.py\0--tpu_hostname_override=10.0.0.2\0",
    ],
)
def test_the_server_of_the_image_is_no_use_by_its_name(tmp_path: Path, title: bytes) -> None:
    process(tmp_path, 7, title, "/dev/accel0", "/dev/accel1")
    assert reasons(tmp_path) == []


def test_the_server_of_the_image_is_no_use_by_its_user(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:\ntpu-runtime:x:2000:2000::/home/tpu-runtime:\n")
    process(tmp_path, 7, b"/worker/main\0", "/dev/accel0")
    process(tmp_path, 8, b"python3\0train.py\0", "/dev/accel0")
    for pid, uid in ((7, 2000), (8, 20001)):
        (tmp_path / f"proc/{pid}/status").write_text(f"Name:\tmain\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    assert reasons(tmp_path) == ["process 8 holds TPU chips"]


def test_a_program_that_uses_the_chips_through_the_server_is_use(tmp_path: Path) -> None:
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    line = "   {0}: 0200000A:CF2E {1} {2} 00000000:00000000 00:00000000 00000000  1001        0 {0} 1 0\n"
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(
        head + line.format(31, "0200000A:2116", "01") + line.format(32, "0200000A:2117", "01")
        + line.format(33, "0200000A:2116", "06") + line.format(34, "0300000A:2116", "01")
    )  # fmt: skip
    address = "0000000000000000FFFF00000200000A:2116"
    (tmp_path / "proc/net/tcp6").write_text(head + line.format(35, address, "01"))
    process(tmp_path, 7, b"python3\0resnet.py\0", "/dev/null", "socket:[31]")
    process(tmp_path, 8, b"python3\0other.py\0", "socket:[32]", "socket:[33]", "socket:[3]")
    process(tmp_path, 9, b"/usr/bin/grpc_tpu_worker\0", "/dev/accel0", "socket:[34]")  # of another host
    process(tmp_path, 10, b"python3\0six.py\0", "socket:[35]")
    assert sorted(reasons(tmp_path)) == [f"process {pid} uses TensorFlow's server" for pid in (10, 7)]


def test_a_container_of_the_image_is_no_use_and_one_of_a_user_is(tmp_path: Path) -> None:
    images = {
        "a" * 64: '{"Config": {"Image": "gcr.io/cloud-tpu-v2-images/tpu_agents:cl_695344571"}}',
        "b" * 64: '{"Config": {"Image": "us-docker.pkg.dev/p/r/train:1"}}',
        "c" * 64: "{",
        "d" * 64: "[]",
    }
    for pid, (identity, config) in enumerate(images.items(), 1):
        folder = tmp_path / "var/lib/docker/containers" / identity
        folder.mkdir(parents=True)
        (folder / "config.v2.json").write_text(config)
        process(tmp_path, pid, b"/agents/bin/health_agent\0", "/dev/vfio/0")
        group = f"0::/system.slice/docker-{identity}.scope\n" if pid % 2 else f"1:cpu:/docker/{identity}\n"
        (tmp_path / f"proc/{pid}/cgroup").write_text(group)
    process(tmp_path, 5, b"python3\0train.py\0", "/dev/vfio/0")
    (tmp_path / "proc/5/cgroup").write_text(f"0::/system.slice/docker-{'e' * 64}.scope\n")  # docker lacks it
    assert sorted(reasons(tmp_path)) == [f"process {pid} holds TPU chips" for pid in (2, 3, 4, 5)]


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


def test_a_pipe_of_another_login_hides_no_run(tmp_path: Path) -> None:
    """A look that waited for its other end would never see that the host is used, and --idle would end it."""
    folder = tmp_path / "home/.tpuctl/runs/a/1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "lock")
    (folder / "script.lock").symlink_to("/dev/tty")
    lock = tmp_path / "home/.tpuctl/runs/digits/2/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert reasons(tmp_path) == ["run digits, attempt 2"]


def test_a_run_that_begins_and_ends_between_two_looks_is_use_once(tmp_path: Path) -> None:
    activity = Activity(str(tmp_path), str(tmp_path / "home"))

    def launch(run: str, attempt: int) -> None:
        lock = tmp_path / f"home/.tpuctl/runs/{run}/{attempt}/lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()

    launch("old", 1)
    assert list(activity.reasons()) == [], "the first look does not know when it was"
    launch("digits", 1)
    launch("digits", 2)
    assert list(activity.reasons()) == [
        "run digits, attempt 1, which has ended", "run digits, attempt 2, which has ended",
    ]  # fmt: skip
    assert list(activity.reasons()) == []
    os.utime(tmp_path / "home/.tpuctl/runs/digits/2/lock")  # as who resumes it does
    assert list(activity.reasons()) == ["run digits, attempt 2, which has ended"]
    (tmp_path / "home/.tpuctl/runs/digits/1/lock").unlink()
    assert list(activity.reasons()) == []


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
