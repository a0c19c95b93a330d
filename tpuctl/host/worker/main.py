"""Runs the worker program: `launch` detaches it and answers, `ask` looks at it, `resume` follows a reboot.

`enter` becomes another program in the environment of a run.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from typing import BinaryIO, List, Mapping, NoReturn, Optional, Sequence

from tpuctl.host import timing
from tpuctl.host.worker.control import first_lock, is_held, is_held_in, is_started, live_attempts
from tpuctl.host.worker.guard import NOT_PERMITTED, guarded
from tpuctl.host.worker.records import (
    BUSY,
    ENTRY_FILE,
    FORBIDDEN,
    LOCK_FILE,
    STARTED,
    STARTED_BEFORE,
    Spec,
    read_spec,
)
from tpuctl.host.worker.reporting import PREFIX

BOOT_TIME = re.compile(r"^btime (\d+)$", re.MULTILINE)


def main(arguments: List[str]) -> NoReturn:
    """Run `launch SPEC`, or `ask`, `resume` or `enter` with the attempt's folder, which SPEC is in."""
    command, path, *words = arguments
    commands = {"launch": launch, "ask": ask, "resume": _resume}
    _leave(enter(path, words) if command == "enter" else commands[command](path))


def _leave(code: int) -> NoReturn:
    """End this process without Python's own end: that takes as long as its start."""
    try:
        sys.stderr.flush()
    except OSError:  # a full disk
        pass
    os._exit(code)


def _spec_on_stdin() -> Spec:
    spec = read_spec(sys.stdin)
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), sys.stdin.fileno())  # frees the deleted file
    return spec


def _run(spec: Spec, folder: str, guard: int = 0) -> int:
    from tpuctl.host.worker.supervisor import Supervisor  # launching takes a third of the CPU without it

    Supervisor(spec, folder, guard).run()
    _keep_bytecode(folder)
    return 0


def _resume(folder: str) -> int:
    from tpuctl.host.worker.resumption import resume  # after a reboot only
    from tpuctl.host.worker.supervisor import Supervisor

    return resume(folder, lambda spec, path: Supervisor(spec, path).note_reboot(), launch)


def _keep_bytecode(folder: str) -> None:
    from tpuctl.host.worker import bytecode  # after the run's end

    try:
        bytecode.keep(folder)
    except OSError:
        pass  # a full disk: the next start compiles, too


def launch(path: str) -> int:
    """Start the supervisor detached and print one line of JSON: its pid, or why it did not start.

    The spec's file is deleted at once, however this ends: it may hold secrets.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        spec = open(path, "rb")  # noqa: SIM115  the block below closes it
        os.unlink(path)
    except OSError as error:
        return _answer({"error": STARTED_BEFORE if is_started(folder) else str(error)}, 1)
    with spec:
        content = _peek(spec)
        lock = first_lock(folder) or _lock_of_removed_run(content, folder)
        if lock is None:
            is_another = content is not None and _is_of_another(content, folder)
            return _busy(folder) if is_another else _answer({"error": STARTED_BEFORE}, 1)
        with lock:
            others = live_attempts(folder) if content and not content.line else []
            at_work = next((other for other in others if not _has_finished(other)), "")
            return _busy(at_work) if at_work else _start(spec, folder)


def _busy(folder: str) -> int:
    """Answer that another run works on this host: its records are gone, or in another bucket."""
    run = os.path.basename(os.path.dirname(folder))
    return _answer({"error": "run '%s' works there" % run, "cause": BUSY, "run": run}, 1)


def _is_of_another(spec: Spec, folder: str) -> bool:
    """Return whether the attempt in a spec's folder is that of another run of its name."""
    from tpuctl.host.worker.reporting import read_last

    return (read_last(folder) or {}).get("token", spec.token) != spec.token


def _has_finished(folder: str) -> bool:
    from tpuctl.host.worker.reporting import has_finished

    return has_finished(folder)


def ask(folder: str) -> int:
    """Print one line of JSON: whether the supervisor lives, and its last status on this disk.

    That of one that lives only where the bucket refuses its last word: its script has ended then.
    """
    from tpuctl.host.worker.reporting import read_last

    try:
        lock = open(os.path.join(folder, LOCK_FILE), "rb")  # noqa: SIM115  the block below closes it
    except FileNotFoundError:
        return _answer({"state": "absent"}, 0)
    with lock:
        if is_held(lock):
            status = read_last(folder) or {}
            return _answer({"state": "alive", **({"status": status} if status.get("refusal") else {})}, 0)
        if not os.path.exists(os.path.join(folder, STARTED)):
            return _answer({"state": "absent", "detail": "its start there was cut off"}, 0)
        restarted = _boot_time() > os.fstat(lock.fileno()).st_mtime
    detail = "the host was restarted" if restarted else ""
    return _answer({"state": "gone", "detail": detail, "status": read_last(folder)}, 0)


def enter(folder: str, words: Sequence[str]) -> int:
    """Become a command, by default the user's shell, in the environment of the attempt in a folder.

    Values that the disk does not have are those of a process of the run, while there is one. Return the exit
    code that a shell has where there is no such command.
    """
    from tpuctl.host.worker.job import processes

    with open(os.path.join(folder, ENTRY_FILE), encoding="utf-8") as stream:
        entry = json.load(stream)
    os.environ.update(entry["variables"])
    alive = processes.with_variable(processes.running(), [processes.variable(folder)])
    if alive:
        os.environ.update((name, processes.value_of(min(alive), name)) for name in entry["unstored"])
    elif entry["unstored"]:
        text = "[tpuctl] not set, as only the running program has the values: %s"
        print(text % ", ".join(entry["unstored"]), file=sys.stderr)
    os.chdir(entry["folder"])
    command = list(words) or [os.environ.get("SHELL") or "/bin/sh"]
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and the command would inherit that
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        print("[tpuctl] %s: %s" % (command[0], error.strerror), file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def _boot_time() -> float:
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            match = BOOT_TIME.search(stream.read())
    except OSError:  # not Linux
        return 0.0
    return float(match.group(1)) if match else 0.0


def _start(spec: BinaryIO, folder: str) -> int:
    """Start the supervisor as a copy of this process: another Python would take its start-up time again."""
    log = os.path.join(folder, "supervisor.log")
    with open(log, "ab") as stream:
        pid = os.fork()
        if pid == 0:
            return supervise_detached(spec, stream, folder)
    return _await_start(pid, os.path.join(folder, STARTED), log)


def supervise_detached(spec: BinaryIO, log: BinaryIO, folder: str) -> int:
    """Run the script under a guard with nothing of the login: session, standard streams.

    Return the exit code. The attempt's lock is the launch's: the keeper sees by it that the run goes on.
    """
    try:
        os.setsid()
        os.lseek(spec.fileno(), 0, os.SEEK_SET)
        for number, stream in enumerate((spec, log, log)):
            os.dup2(stream.fileno(), number)
        spec.close()
        log.close()
        own, guard = _spec_on_stdin(), os.getpid()
        return guarded(own, folder, lambda: _run(own, folder, guard))
    except Exception:
        import traceback  # as in the guard

        traceback.print_exc()
        return 1


def _peek(file: BinaryIO) -> Optional[Spec]:
    """Return the spec in a file; None for what is no spec: the supervisor names what is wrong with it."""
    try:
        return read_spec(io.StringIO(file.read().decode()))
    except (ValueError, AttributeError):
        return None


def _lock_of_removed_run(spec: Optional[Spec], folder: str) -> Optional[BinaryIO]:
    """Return the attempt's lock where what was started in its folder was of a removed run of this name.

    A program that has said its last word, and is about to end, is waited for.
    """
    from tpuctl.host.worker.preparation.steps import make_room  # a name is rarely used again

    if spec and _has_finished(folder):
        timing.wait_until(lambda: not is_held_in(folder, LOCK_FILE), timing.END_TIMEOUT, interval=0.05)
    return make_room(folder, spec.key) if spec else None


def _await_start(pid: int, started: str, log: str) -> int:
    """Wait until the first status is in the bucket: from then on the bucket shows everything else.

    `pid` is the guard's; its supervisor's is in the file `started`.
    """
    ended, status = False, 0

    def started_or_ended() -> bool:
        nonlocal ended, status
        if not ended:
            waited, status = os.waitpid(pid, os.WNOHANG)
            ended = waited == pid
        return os.path.exists(started) or ended

    timing.wait_until(started_or_ended, timing.START_TIMEOUT, interval=0.05)
    if os.path.exists(started):
        with open(started, encoding="ascii") as stream:
            return _answer({"pid": int(stream.read().split()[0])}, 0)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    with open(log, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().strip().splitlines() or ["no answer in %d s" % timing.START_TIMEOUT]
    if ended and os.WIFEXITED(status) and os.WEXITSTATUS(status) == NOT_PERMITTED:
        words = lines[-1][len(PREFIX) :] if lines[-1].startswith(PREFIX) else lines[-1]
        return _answer({"error": words, "cause": FORBIDDEN, "account": _account()}, 1)
    return _answer({"error": lines[-1]}, 1)


def _account() -> str:
    """Return the service account that programs on this host act as; empty where its server does not say."""
    from tpuctl.host.wire import ask_metadata  # where it may do too little

    try:
        answer = ask_metadata("instance/service-accounts/default/email", timing.METADATA_TIMEOUT)
    except OSError:
        return ""
    return answer.text.strip() if answer.status == 200 else ""


def _answer(content: Mapping[str, object], code: int) -> int:
    print(json.dumps(content), flush=True)
    return code
