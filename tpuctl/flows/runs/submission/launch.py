"""Packs the worker program, copies it to the hosts, and starts and stops it there."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from tpuctl.bucket_objects import DecodeError, Line, decode
from tpuctl.errors import ConfigError, HostError, StateError, TpuctlError, joined_hints, say_bill
from tpuctl.flows.hosts.bucket_access import grant_command
from tpuctl.flows.hosts.program_zip import program
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.host.worker.records import (
    BUSY,
    ENTRY_FILE,
    FORBIDDEN,
    PROGRAM_FILE,
    STARTED_BEFORE,
    Spec,
    encode,
    identity,
)
from tpuctl.nodes import Node
from tpuctl.parallel import values

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import CommandResult, Ssh, SshSession

LAUNCH_TIMEOUT = 180.0
"""Seconds for the program's first answer; it gives up by itself after its own START_TIMEOUT."""
PROGRAM, SPEC = PROGRAM_FILE, "spec.json"
KEPT = ".tpuctl/programs"
"""Where hosts keep programs with their bytecode, by the hash of what was sent (host/worker/bytecode.py)."""

START = (
    "umask 077; "
    # Also a folder of an earlier version becomes private; `mkdir -m` leaves those above it readable.
    'install -d -m 700 .tpuctl "$1" || exit 91; '
    # Of two launches at once none reads what the other one is writing, and each has a spec of its own.
    'p="$1/launch-$$"; rm -rf "$p"; mkdir "$p" || exit 91; '
    f'tar -xof - -C "$p" && mv -f "$p/{PROGRAM}" "$1" && mv -f "$p/{SPEC}" "$p.json" && rmdir "$p" || '
    '{ rm -rf "$p"; exit 92; }; '
    'command -v python3 >/dev/null || { rm -f "$p.json"; exit 93; }; '
    f'program="{KEPT}/$2.zip"; [ -s "$program" ] || program="$1/{PROGRAM}"; '
    'exec python3 "$PWD/$program" launch "$PWD/$p.json" </dev/null'
)
"""For sh: makes the attempt's folder $1, unpacks the tar file on stdin there and starts the program.

$2 is the program's hash. All in one round trip. The spec has secrets, which no command line may show.
"""
STOP = 'read -r pid of <"$1/started"; [ "${2-$of}" = "$of" ] && kill -TERM "$pid"'
"""For sh: ends the supervisor in folder $1; with $2, the identity of its attempt's key, no other run's."""
ENTER = f"""
folder="$PWD/$1"
[ -e "$folder/{ENTRY_FILE}" ] || {{ echo "There is no $1 to enter on $(hostname). $2" >&2; exit 94; }}
shift 2
exec python3 "$folder/{PROGRAM}" enter "$folder" "$@"
"""
"""For sh: becomes the command after $2 in the environment of the attempt in folder $1; $2 is why not."""
NOT_THERE = (
    "The run has not been prepared here yet, its preparation has failed, an earlier version of tpuctl has"
    " submitted it, or its files were deleted, as happens after five later runs."
)
IS_FULL = "Is its disk full? 'df -h' on the host shows it."
ACCOUNT = re.compile(r"[A-Za-z0-9][\w.-]{0,98}@[\w.-]{1,150}")
"""A host may answer anything, and the command that is shown is copied into a shell."""
FAILURES = {
    91: ("cannot make {folder}: {reason}", IS_FULL),
    92: ("cannot write the program into {folder}: {reason}", IS_FULL),
    93: ("has no python3", "Choose a runtime version that has it: tpuctl up --runtime"),
}
"""Exit code of START -> what the worker could not do, and a hint."""


class RefusedStartError(HostError):
    """The host answered, and says why it does not start the program."""


class StartedBeforeError(RefusedStartError):
    """The worker was started by an earlier launch of this attempt."""


class BusyHostError(StateError):
    """Another run works on the worker's host, which the bucket does not list there."""

    is_whole = False
    """Whether every host has refused: nothing has started."""


class UnheardError(HostError):
    """The connection was lost before the answer: the worker may have started."""


def launch_all(
    ssh: Ssh, node: Node, host_keys: Mapping[int, str], specs: Sequence[Spec], *, goes_on: bool = False,
    on_left: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Start the program on each spec's worker, at once, or on none: a failure stops those that started.

    `goes_on` continues a launch that was killed: workers that it had started are left as they are. `on_left`
    is called after a failure where one may go on that was not reached. Raises the first worker's HostError,
    ConfigError where its service account may not write, or BusyHostError, with a count of those that failed
    in its hint.
    """
    program = worker_program()
    by_worker = {spec.worker: spec for spec in specs}
    with ssh.pool(node, lambda worker: published_key(node, host_keys, worker)) as pool:
        launches = pool.run_all(
            lambda session, worker: launch(session, program, by_worker[worker]), by_worker
        )
        try:
            values(
                launched
                for launched in launches
                if not (goes_on and isinstance(launched.error, StartedBeforeError))
            )
        except TpuctlError as error:
            if isinstance(error, BusyHostError):
                error.is_whole = all(isinstance(launched.error, BusyHostError) for launched in launches)
            if isinstance(error, ConfigError):
                place = f"{node.name} in {node.zone}"
                say_bill(error, f"Node '{node.name}' bills.", f"Delete it: {node.deletion}", [place])
            pids = {launched.item: launched.value for launched in launches if launched.value}
            stops = pool.run_all(lambda session, worker: stop(session, pids[worker]), pids)
            unheard = [launched.item for launched in launches if isinstance(launched.error, UnheardError)]
            pool.run_all(lambda session, worker: _stop_unheard(session, by_worker[worker]), unheard)
            if on_left and (unheard or any(stopped.error for stopped in stops)):
                on_left()
            raise


def launch(session: SshSession, program: bytes, spec: Spec) -> int:
    """Copy program and spec to the spec's worker, start the program there, detached, and return its pid.

    Raises HostError that names the worker and the reason, UnheardError where it may have started, ConfigError
    where the service account of the host may not write into the bucket, BusyHostError for a host in use.
    """
    folder = _folder(spec.run, spec.attempt)
    files = _tar({PROGRAM: program, SPEC: encode(spec)})
    argv = ["sh", "-c", START, "sh", folder, hashlib.sha256(program).hexdigest()]
    try:
        result = session.run(argv, LAUNCH_TIMEOUT, files)
    except HostError as error:
        raise UnheardError(error.message, hint=error.hint, **error.facts) from error
    return _read_pid(result, spec, folder)


def _folder(run: str, attempt: int) -> str:
    return f".tpuctl/runs/{run}/{attempt}"


def stop(session: SshSession, pid: int) -> None:
    """Stop a program that `launch` started; raises HostError where it is not reached."""
    session.run(["kill", "-TERM", str(pid)])


def stop_attempt(session: SshSession, run: str, attempt: int, *of: str) -> None:
    """Stop an attempt's program if it has started; raises HostError where it is not reached.

    `of` is the identity of its key, where an earlier run of the name may have been on the host.
    """
    session.run(["sh", "-c", STOP, "sh", _folder(run, attempt), *of])


def entry(run: str, attempt: int) -> list[str]:
    """Return the words before a command that start it on a host in the environment of an attempt."""
    return ["sh", "-c", ENTER, "sh", _folder(run, attempt), NOT_THERE]


def _stop_unheard(session: SshSession, spec: Spec) -> None:
    stop_attempt(session, spec.run, spec.attempt, identity(spec.key))


def _tar(files: Mapping[str, bytes]) -> bytes:
    """Return a tar file whose files only their owner can read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def worker_program() -> bytes:
    """Return the program for the hosts as a zip that `python3` runs; the same source gives the same bytes."""
    return program("worker", libraries=["packaging"])


class _Answer(msgspec.Struct, frozen=True):
    """The program's answer; a host may print anything."""

    pid: Annotated[int, msgspec.Meta(ge=2, lt=1 << 32)] | None = None
    error: Line = ""
    cause: Line = ""
    """FORBIDDEN, BUSY, or empty."""
    run: Line = ""
    """Which run the host is busy with."""
    account: Line = ""
    """Of the host, where it is forbidden to it to write."""


def _read_pid(result: CommandResult, spec: Spec, folder: str) -> int:
    """Return the pid in the program's answer; raises HostError with its reason or the last line of stderr."""
    reason = (result.stderr.strip().splitlines() or ["no answer"])[-1]
    text, hint = "could not start the script: {reason}", "Check the host's python3."
    try:
        answer = decode((result.stdout.strip().splitlines() or [""])[-1].encode(), _Answer)
    except DecodeError:
        answer = _Answer()
    if answer.pid is not None:
        return answer.pid
    if answer.cause == FORBIDDEN:
        raise _forbidden(spec, answer)
    if answer.cause == BUSY:
        raise _busy(spec, answer.run)
    if answer.error == STARTED_BEFORE:
        raise StartedBeforeError(f"Worker {spec.worker} {text.format(reason=answer.error)}.", hint=hint)
    kind = HostError
    if answer.error:
        kind, reason = RefusedStartError, answer.error
    elif result.exit_code in FAILURES:
        kind, (text, hint) = RefusedStartError, FAILURES[result.exit_code]
    raise kind(f"Worker {spec.worker} {text.format(folder=folder, reason=reason)}.", hint=hint)


def _busy(spec: Spec, run: str) -> BusyHostError:
    """Return the error of a host on which another run works: its records are gone, or in another bucket."""
    way = "Wait in line: the same command with --queue"
    if run == spec.run:
        way += " and another --name"
    return BusyHostError(
        f"The TPU is busy with run '{run}': it works on worker {spec.worker}, and gs://{spec.bucket} does not"
        " say so. Its records were deleted, or are in another bucket.",
        hint=joined_hints(way, f"Stop it: tpuctl cancel {run}"),
        busy=[run],
    )


def _forbidden(spec: Spec, answer: _Answer) -> ConfigError:
    """Return the error of a host whose service account may not write into the bucket."""
    account = answer.account if ACCOUNT.fullmatch(answer.account) else ""
    who = f", {account}," if account else ""
    return ConfigError(
        f"The service account of the TPU{who} may not write into gs://{spec.bucket}: {answer.error}",
        hint=f"Grant it a role, which takes effect within minutes: {grant_command(spec.bucket, account)}",
        account=account,
        worker=spec.worker,
    )
