"""Gives the programs of each host ports of their own, as each machine of a network has its own.

What listens on every interface is bound to the host's address, and what listens on 127.0.0.1 to an address
of loopback that only this host's programs are led to. The kernel asks a process, which is this file run as a
script, about each bind and connect (seccomp_unotify(2)); it outlives a killed simulator, as the programs do,
and ends with the last of them. Linux on x86-64 and ARM alone; where the system refuses it, hosts share the
ports of the machine. TCP alone. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from typing import TypeVar

T = TypeVar("T")

SYSTEM_CALLS = {
    # machine: AUDIT_ARCH of <linux/audit.h>; numbers of bind, connect and seccomp
    "x86_64": (0xC000003E, 49, 42, 317),
    "aarch64": (0xC00000B7, 200, 203, 277),
}
PIDFD_OPEN, PIDFD_GETFD = 434, 438
"""The same on both."""
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ASK, ALLOW = 0x7FC00000, 0x7FFF0000
"""Of <linux/seccomp.h> and <linux/bpf_common.h>: SECCOMP_RET_USER_NOTIF and SECCOMP_RET_ALLOW."""
NO_NEW_PRIVILEGES = 38
RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""
QUESTION, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
"""struct seccomp_notif and struct seccomp_notif_resp."""
CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE: the call is made as it is."""
LARGEST = 28
"""Bytes of a sockaddr_in6."""
EVERYWHERE, LOOPBACK = IPv4Address("0.0.0.0"), IPv4Address("127.0.0.1")  # noqa: S104  to recognise it
TO_LOOPBACK = int(IPv4Address("127.128.0.0")) - int(IPv4Address("127.64.0.0"))

libc = ctypes.CDLL(None, use_errno=True)


def loopback_of(address: str) -> str:
    """Return what stands for 127.0.0.1 on the host at an address of 127.64.0.0/10: one of 127.128.0.0/10."""
    return str(IPv4Address(address) + TO_LOOPBACK)


class OwnPorts:
    """The process that answers for all hosts of a simulator; it starts with the first of them."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def host(self, address: str) -> HostPorts | None:
        """Return what starts the programs of the host at `address`; None where the system refuses it."""
        ports = HostPorts()
        try:
            listener = ports.call(_install)
        except OSError:
            ports.close()
            return None
        try:
            with self._lock:
                self._control = self._control or _start()
                socket.send_fds(self._control, [address.encode()], [listener])
        finally:
            os.close(listener)
        return ports

    def close(self) -> None:
        """Let the process end with the programs of the hosts."""
        if self._control:
            self._control.close()


class HostPorts:
    """A thread whose programs are those of one host: a filter is of the thread that has asked for it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "programs of a host")

    def call(self, start: Callable[..., T], *arguments: object) -> T:
        """Call `start` in the thread, and return what it returns."""
        return self._thread.submit(start, *arguments).result()

    def close(self) -> None:
        """End the thread; programs keep running."""
        self._thread.shutdown(wait=False)


def _start() -> socket.socket:
    """Start the process, and return the socket by which it is told of hosts."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(its.fileno())],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this one; without a code Python would warn
    return ours


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _install() -> int:
    """Have this thread and its children ask about bind and connect; return where; raises OSError."""
    if platform.machine() not in SYSTEM_CALLS or not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "not on this system")
    architecture, bind, connect, seccomp = SYSTEM_CALLS[platform.machine()]
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, 4),
            (JUMP_IF_EQUAL, 0, 3, architecture),
            (LOAD, 0, 0, 0),
            (JUMP_IF_EQUAL, 2, 0, bind),
            (JUMP_IF_EQUAL, 1, 0, connect),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, ASK),
        )
    )
    program = _Program(len(code) // 8, code)
    if os.geteuid() and libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    for flags in (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):  # the second for Linux before 5.19
        listener = int(libc.syscall(seccomp, SET_MODE_FILTER, flags, ctypes.byref(program)))
        if listener >= 0:
            os.set_inheritable(listener, False)
            return listener
    raise OSError(ctypes.get_errno(), "seccomp")


# The process: leads each bind and connect of a host's programs to the addresses of the host.


def main(control: socket.socket) -> None:
    """Answer until there are neither hosts to come nor programs of those that came."""
    poll, hosts = select.poll(), dict[int, str]()
    poll.register(control, select.POLLIN)
    is_open = True
    while is_open or hosts:
        for descriptor, event in poll.poll():
            if descriptor == control.fileno():
                address, descriptors, *_ = socket.recv_fds(control, 64, 1)
                if not descriptors:
                    is_open = False
                    poll.unregister(control)
                for listener in descriptors:
                    hosts[listener] = address.decode()
                    poll.register(listener, select.POLLIN)
            elif event & select.POLLIN:
                _serve(descriptor, hosts[descriptor])
            else:  # its last program has ended
                poll.unregister(descriptor)
                del hosts[descriptor]
                os.close(descriptor)


def _serve(listener: int, host: str) -> None:
    """Answer one question."""
    question = bytearray(QUESTION.size)
    try:
        fcntl.ioctl(listener, RECEIVE, question)
    except OSError:  # the program has ended, or a signal came
        return
    identity, pid, _, number, _, _, descriptor, place, length, *_ = QUESTION.unpack(question)
    try:
        answer = _answer(host, pid, number, descriptor & 0xFFFFFFFF, place, min(length, LARGEST))
    except (OSError, ValueError, struct.error):  # it has ended, or this process may not look into it
        answer = None

    def send(code: int | None) -> None:
        flags = CONTINUE if code is None else 0
        try:
            fcntl.ioctl(listener, SEND, bytearray(ANSWER.pack(identity, 0, -(code or 0), flags)))
        except OSError:
            pass

    if answer is None:
        send(None)
    else:
        # A connect may take its time, and others shall not wait for it.
        threading.Thread(target=lambda: send(_code(answer)), daemon=True).start()


def _code(act: Callable[[], None]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _answer(
    host: str, pid: int, number: int, descriptor: int, place: int, length: int
) -> Callable[[], None] | None:
    """Return what is done instead of the call; None for a call that is right as it is."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(place)
        sent = memory.read(length)
    address, port = _address(sent)
    if address is None:
        return None
    own = _duplicate(pid, descriptor)
    is_bind = number == SYSTEM_CALLS[platform.machine()][1]
    if own.type != socket.SOCK_STREAM:
        own.close()
        return None
    target = _bound(host, address, port) if is_bind else next(_connected(host, address, port), None)
    if target is None:
        own.close()
        return None
    if own.family == socket.AF_INET6:
        if own.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            target, port = "::", 0  # nobody is reached by IPv6: the port stays free for other hosts
        else:
            target = f"::ffff:{target}"

    def act() -> None:
        with own:
            (own.bind if is_bind else own.connect)((target, port))

    return act


def _address(sent: bytes) -> tuple[IPv4Address | None, int]:
    """Return address and port of a sockaddr; no address for one that is not to be looked at."""
    family, port = struct.unpack_from("=H", sent)[0], int.from_bytes(sent[2:4], "big")
    if family == socket.AF_INET:
        return IPv4Address(sent[4:8]), port
    if family == socket.AF_INET6:
        inner = sent[8:24]
        if inner == bytes(16):
            return EVERYWHERE, port
        if inner.startswith(bytes(10) + b"\xff\xff"):
            return IPv4Address(inner[12:]), port
    return None, 0


def _bound(host: str, address: IPv4Address, port: int) -> str | None:
    return {EVERYWHERE: host, LOOPBACK: loopback_of(host)}.get(address)


def _connected(host: str, address: IPv4Address, port: int) -> Iterator[str]:
    """Yield the addresses where a program of the host listens, for a connection to 127.0.0.1."""
    if address in (EVERYWHERE, LOOPBACK):
        yield from (own for own in (loopback_of(host), host) if is_taken(own, port))


def is_taken(address: str, port: int) -> bool:
    """Whether a program has a port at an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _duplicate(pid: int, descriptor: int) -> socket.socket:
    """Return the same socket as a descriptor of another process, of any of its threads."""
    with open(f"/proc/{pid}/status") as status:
        leader = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))
    process = _checked(libc.syscall(PIDFD_OPEN, leader, 0))
    try:
        return socket.socket(fileno=_checked(libc.syscall(PIDFD_GETFD, process, descriptor, 0)))
    finally:
        os.close(process)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
