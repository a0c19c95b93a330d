"""Finds out who uses this host: a run of tpuctl, somebody logged in, or a program that holds TPU chips.

What the image itself runs holds chips from boot on, too, and does not count as use.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import pwd
import re
import struct
from typing import Dict, Iterator, Optional, Set

CHIP = re.compile(r"/dev/(accel|vfio/)[0-9]+")
"""What Google's tpu-info takes for one: AI-Hypercomputer/cloud-accelerator-diagnostics, tpu_info/device.py.
The control device /dev/vfio/vfio is none."""
IMAGE_USER = b"tpu-runtime"
"""The user of TensorFlow's server, which holds the chips of `tpu-vm-tf-*-pod` images from boot on: the unit
tpu-runtime in mlcommons/training_results_v2.0, tools/grpc_tpu_worker/README.md in tensorflow/tpu. On plain
images the same user runs fake_tensorflow: sgl-project/sglang-jax#433."""
IMAGE_REGISTRY = "gcr.io/cloud-tpu-v2-images/"
"""Where the containers of that server and of the agents come from, which run as root: `*_DOCKER_URL` in the
metadata tpu-env, sgl-project/sglang-jax#433. Not known is whether an agent ever holds a chip."""
IMAGE_PROGRAMS = (b"tensorflow_server", b"grpc_tpu_worker", b"grpc_tpu_worker.py")
"""Names of that server. Nobody has seen the first one on a TPU VM yet."""
SERVER_PORT = b":%04X" % 8470
"""Where that server listens: tools/grpc_tpu_worker/grpc_tpu_worker.py in tensorflow/tpu. A program that uses
the chips through it holds none, but a connection; nobody has watched one on a TPU VM yet."""
ESTABLISHED = b"01"
"""In /proc/net/tcp: proc(5)."""
CONTAINER = re.compile(rb"docker[-/]([0-9a-f]{64})")
"""In /proc/PID/cgroup: `/docker/ID` with cgroups of version 1, `docker-ID.scope` with version 2."""
CONTAINERS = "var/lib/docker/containers/%s/config.v2.json"
SSHD = re.compile(rb"sshd(-session)?: [^\s\[]+@")
"""Title of sshd's process of somebody logged in: `sshd: ada@pts/0`, without a terminal `sshd: ada@notty`."""
LOCKS = ".tpuctl/runs/*/*/*lock"
"""Below a home: held by the supervisor of a run, and by its script, as long as they live."""
UTMP = "var/run/utmp"
UTMP_ENTRY = struct.Struct("<hxxi32s4s32s256shhiii16s20s")
"""struct utmp of Linux, 384 bytes: utmp(5)."""
USER_PROCESS = 7


class Activity:
    """Looks at one host; `root` stands for the root of its file system, `home` is one more home."""

    def __init__(self, root: str = "/", home: str = "") -> None:
        self._root = root
        self._home = home
        self._seen: Optional[Dict[str, int]] = None
        """The locks of the last look, each with its time."""

    def reasons(self) -> Iterator[str]:
        """Yield what uses the host now; nothing for a host that is idle."""
        yield from self._runs()
        yield from sorted({"%s is logged in" % user for user in (*self._sessions(), *self._terminals())})
        yield from self._holders()

    def _runs(self) -> Iterator[str]:
        """Yield the runs that work, and those that began after the last look and have ended by now."""
        locks = {lock: _changed(lock) for lock in self._locks()}
        working = {os.path.dirname(lock) for lock in locks if _is_held(lock)}
        last = locks if self._seen is None else self._seen
        begun = {os.path.dirname(lock) for lock in locks if last.get(lock) != locks[lock]}
        self._seen = locks
        for folder in sorted(working | begun):
            run, attempt = folder.split(os.sep)[-2:]
            yield "run %s, attempt %s%s" % (run, attempt, "" if folder in working else ", which has ended")

    def _locks(self) -> Set[str]:
        homes = {self._home} - {""}
        if self._root == "/":
            homes |= {entry.pw_dir for entry in pwd.getpwall()} | set(glob.glob("/home/*"))
        return {lock for home in homes for lock in glob.glob(os.path.join(glob.escape(home), LOCKS))}

    def _sessions(self) -> Iterator[str]:
        for process in self._processes():
            title = _read(process, "cmdline")[:200]
            if SSHD.match(title):
                yield title.partition(b": ")[2].partition(b"@")[0].decode("utf-8", "replace")

    def _terminals(self) -> Iterator[str]:
        """Yield who has a terminal by utmp; those of tmux and screen stay there when nobody looks."""
        content = _read(self._root, UTMP)
        for entry in UTMP_ENTRY.iter_unpack(content[: len(content) // UTMP_ENTRY.size * UTMP_ENTRY.size]):
            kind, pid, user, host = entry[0], entry[1], entry[4], entry[5]
            if kind == USER_PROCESS and not host.startswith((b"tmux(", b":")) and _is_alive(pid):
                yield user.rstrip(b"\0").decode("utf-8", "replace")

    def _holders(self) -> Iterator[str]:
        connections, root = self._connections(), os.path.realpath(self._root).rstrip("/")
        for process in self._processes():
            links = map(_target, glob.iglob(os.path.join(process, "fd", "*")))
            files = {link[len(root) :] if link.startswith(root + "/dev/") else link for link in links}
            uses = [] if files.isdisjoint(connections) else ["uses TensorFlow's server"]
            uses += ["holds TPU chips"] if any(map(CHIP.fullmatch, files)) else []
            if uses and not self._is_of_the_image(process):
                yield "process %s %s" % (os.path.basename(process), uses[-1])

    def _connections(self) -> Set[str]:
        """Return the sockets connected with a server of TensorFlow, as descriptors show them."""
        lines = _read(self._root, "proc/net/tcp") + _read(self._root, "proc/net/tcp6")
        fields = [line.split() for line in lines.splitlines()]
        return {
            "socket:[%s]" % connection[9].decode()
            for connection in fields
            if len(connection) > 9 and connection[3] == ESTABLISHED and connection[2].endswith(SERVER_PORT)
        }

    def _is_of_the_image(self, process: str) -> bool:
        """Return whether a process belongs to the image that the host was created with."""
        program = [os.path.basename(word) for word in _read(process, "cmdline").split(b"\0")[:2]]
        if any(word in IMAGE_PROGRAMS for word in program):
            return True
        if b"Uid:\t%d\t" % self._image_uid() in _read(process, "status"):
            return True
        container = CONTAINER.search(_read(process, "cgroup"))
        return container is not None and self._is_of_google(container.group(1).decode())

    def _image_uid(self) -> int:
        """Return the id of IMAGE_USER; -1 on a host that has none."""
        for line in _read(self._root, "etc/passwd").splitlines():
            fields = line.split(b":")
            if fields[0] == IMAGE_USER and len(fields) > 2 and fields[2].isdigit():
                return int(fields[2])
        return -1

    def _is_of_google(self, container: str) -> bool:
        """Return whether a Docker container is one that Google's image starts."""
        try:
            asked = json.loads(_read(self._root, CONTAINERS % container))["Config"]["Image"]
        except (ValueError, KeyError, TypeError):
            return False
        return str(asked).startswith(IMAGE_REGISTRY)

    def _processes(self) -> Iterator[str]:
        return glob.iglob(os.path.join(self._root, "proc", "[0-9]*"))


def _read(folder: str, name: str) -> bytes:
    """Return the begin of a file; nothing of one that is not there, or not any more."""
    try:
        with open(os.path.join(folder, name), "rb") as stream:
            return stream.read(1 << 20)
    except OSError:
        return b""


def _changed(path: str) -> int:
    """Return when a lock's file was written, which its supervisor does when it starts; 0 if it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _is_held(path: str) -> bool:
    """Return whether a process holds a lock: what another login made in its place is not waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    """utmp keeps entries of sessions that a crash ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return pid > 0


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # it has been closed meanwhile
        return ""
