"""Runs many programs that import the same, and imports it once: each program is a fork of this process.

`python -m tests.forks.server tensorflow FD PARENT` (or `commands`) serves the listening Unix socket FD until
SIGTERM. A child process reads the request of each connection, forks the program, and answers with its exit
status. This process only imports, so that a program starts as if it had just imported the same.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.flows.passing_time import PassingTime
from tests.forks.imports import import_commands
from tpuctl.cloud.google_clients import _prepare_grpc as prepare_grpc
from tpuctl.polling import retry

LENGTH = struct.Struct("!I")
"""Of the request, which is JSON; stdin, stdout and stderr travel as descriptors beside it."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
"""Read when TensorFlow is loaded, so the same for every program."""

OPTIONAL = ("jax", "sklearn")
"""What TensorFlow imports where it is installed, for a third of its start; a program may import it later."""
RARELY = (50_000, 20, 100)
"""When garbage is collected: by default TensorFlow spends a tenth of its time on that."""


INHERITED = (signal.SIGHUP, signal.SIGQUIT)
"""What programs ignore where the whole run does: by `nohup`, by the `&` of a script."""
LOOK_INTERVAL = 2.0
"""Seconds between looks whether who started this is gone, while nothing is asked."""


def serve(listener: socket.socket, load: Callable[[], None], starter: int) -> None:
    """Answer connections until SIGTERM or the end of `starter`, a pid; `load` imports when one comes."""
    signal.signal(signal.SIGCHLD, _reap)
    for number in INHERITED:
        signal.signal(number, signal.SIG_DFL)
    is_loaded = False
    while os.getppid() == starter:  # one that was killed ends nothing
        if not select.select([listener], [], [], LOOK_INTERVAL)[0]:
            continue
        connection, _ = listener.accept()
        if not is_loaded:
            load()
            gc.freeze()  # else each collection in a program copies the pages of all that is imported
            gc.set_threshold(*RARELY)
            is_loaded = True
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _answer(connection)
        return  # in the program's process: the interpreter ends as after any program


def _reap(*_: object) -> None:
    """Collect the children that have ended: their CPU time counts as this process's."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _import_tensorflow() -> None:
    os.environ.update(QUIET)
    sys.modules.update(dict.fromkeys(OPTIONAL))
    import tensorflow

    tensorflow.keras.Model  # noqa: B018  loads Keras 3, which is lazy
    for name in OPTIONAL:
        del sys.modules[name]


def _import_commands() -> None:
    prepare_grpc()  # as a command does: what gRPC reads then counts for all programs
    import_commands()


LOADS = {"tensorflow": _import_tensorflow, "commands": _import_commands}


def _answer(connection: socket.socket) -> None:
    """Run one program in a child, and send its exit status; end it when the client hangs up."""
    request, descriptors = receive(connection)
    program = os.fork()
    if program == 0:
        os.setsid()
        if request.get("tells_pid"):
            connection.sendall(LENGTH.pack(os.getpid()))
        connection.close()
        _run(request, descriptors)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    exited = os.pidfd_open(program)
    ready, _, _ = select.select([exited, connection], [], [])
    if exited not in ready:  # the client has hung up
        os.killpg(program, signal.SIGKILL)
    _, status = os.waitpid(program, 0)
    if exited in ready:
        connection.sendall(LENGTH.pack(os.waitstatus_to_exitcode(status) & 0xFFFFFFFF))
    os._exit(0)  # this process is no program: nothing of the interpreter's is to run at its end


def receive(connection: socket.socket) -> tuple[Mapping[str, Any], Sequence[int]]:
    """Return a request and the descriptors that came with it."""
    first, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    (length,) = LENGTH.unpack(first)
    data = b""
    while len(data) < length:
        data += connection.recv(length - len(data))
    return json.loads(data), descriptors


def send(connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Send what `receive` returns."""
    data = json.dumps(request).encode()
    socket.send_fds(connection, [LENGTH.pack(len(data))], descriptors)
    connection.sendall(data)


def _run(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Become the program: its output, folder, environment and arguments, as of a new interpreter."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for target, name in enumerate(("stdin", "stdout", "stderr")):
        _open_stream(target, name)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request.get("cpus"):
        os.sched_setaffinity(0, request["cpus"])
    first, *rest = request["arguments"]
    folder = {"-m": os.getcwd(), "-c": ""}.get(first, os.path.dirname(first))
    path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [folder, *path]  # in the place of this program's own folder
    _emulate_tpu()
    if request.get("without_pauses"):
        _let_retries_take_no_time()
    if first == "-m":
        sys.argv = [rest[0], *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _let_retries_take_no_time() -> None:
    time = PassingTime()
    retry.__kwdefaults__.update(sleep=time.sleep, clock=time.clock)


def _open_stream(descriptor: int, name: str) -> None:
    """Open a standard stream as a new interpreter does: whether it is a terminal is seen now alone."""
    earlier = getattr(sys, name)
    stream = open(  # noqa: SIM115  open until the program ends
        descriptor,
        "r" if name == "stdin" else "w",
        buffering=1 if name == "stderr" else -1,
        encoding=earlier.encoding,
        errors=earlier.errors,
        closefd=False,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _emulate_tpu() -> None:
    """What the simulated host's `sitecustomize` does once TensorFlow is loaded."""
    if os.environ.get("TPUCTL_SIM_TPU"):
        from _tpuctl_tpu import install  # PYTHONPATH leads to it, as on a simulated host

        install(os.environ)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[2])), LOADS[sys.argv[1]], int(sys.argv[3]))
