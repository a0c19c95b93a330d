"""The command exec.

- A command whose last words, after --, are those of another program.
- Finds the one worker that a command reaches, and says how OpenSSH gets there.
- Finds the hosts that a command names, and lets our key log in on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, dry_run_option, reaching_options, with_session
from tpuctl.cli.value_types import DURATION, OUTPUT_PATH
from tpuctl.client.nodes import node as calls
from tpuctl.client.nodes.node import host_name
from tpuctl.config.files import state_folder
from tpuctl.errors import UsageError
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.execution import (
    Ended,
    Output,
    OutputEnds,
    OutputFiles,
    Results,
    Stream,
    command_argv,
)
from tpuctl.flows.remote.openssh import key_alias, write_known_hosts
from tpuctl.flows.remote.targets import (
    ALL_WORKERS,
    HostName,
    Hosts,
    WorkerSet,
    chosen_workers,
    only_worker,
    parse_workers,
)
from tpuctl.nodes import Node
from tpuctl.printable import WholeLines, ranges


class AfterDashes(click.Command):
    """Passes the words after -- as `words`, exactly as they are typed."""

    words = "-- COMMAND..."
    """These words in the line of usage."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after the first -- away before the options are read."""
        own, dashes, words = args, None, []
        if "--" in args:
            at = args.index("--")
            own, dashes, words = args[:at], args[at], args[at + 1 :]
        rest = super().parse_args(ctx, own)
        ctx.params["words"] = tuple(words) if dashes else ()
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the usage line."""
        return [*super().collect_usage_pieces(ctx), self.words]


PINNED = ("target", "project", "ssh_user", "ssh_key", "host_keys")
"""The settings by which a command of another program reaches the same hosts from any folder."""

worker_option = click.option("--worker", metavar="N", help="Number of the worker; default: 0.")


run_option = click.option(
    "--run", metavar="RUN", help="In the environment of a run, on its TPU: its code, packages and variables."
)


def find_worker(session: Session, name: str | None, worker: str | None) -> Hosts:
    """Return the one worker that `NAME`, `NAME@3` or `--worker 3` means, by default worker 0.

    Raises UsageError for several, and as `find_hosts` does.
    """
    host = host_name(name or "")
    return require_one(find(session, host, chosen_workers(host, worker, only_worker(0))))


def find_run(session: Session, run: str, name: str | None, worker: str | None) -> tuple[Hosts, list[str]]:
    """Return the workers of a run that are meant, by default worker 0, and what starts a command in it.

    Raises UsageError for a node that is named, too, and as `hosts_of` does.
    """
    from tpuctl.client.runs.steps import hosts_of  # only runs need it

    if name:
        raise UsageError("A run is on its own TPU.", hint="Leave out NAME, or --run; --worker 3 is worker 3.")
    return hosts_of(session, run, parse_workers(worker or "0"))


def require_one(hosts: Hosts) -> Hosts:
    """Return hosts that are one; raises UsageError for several."""
    if len(hosts.workers) > 1:
        raise UsageError(
            f"{len(hosts.workers)} workers are named, and this command reaches one.",
            hint="On several at once: tpuctl exec NAME -- COMMAND",
        )
    return hosts


def known_hosts_folder(session: Session) -> Path:
    """Return the folder of the host keys of a target's nodes."""
    return state_folder() / "ssh" / session.config.target


def login(session: Session, hosts: Hosts) -> openssh.Login:
    """Return how OpenSSH reaches the one worker of `hosts`; writes its host key into a file of ours."""
    (worker,), node, ssh = hosts.workers, hosts.node, session.cloud.ssh
    return openssh.Login(
        ssh.user,
        ssh.key.absolute(),
        write_known_hosts(known_hosts_folder(session), hosts, node.zone),
        key_alias(node, worker),
        session.cloud.ssh_address(node, worker),
        _proxy(session, node, worker),
    )


def proxy_command(session: Session, arguments: Sequence[str]) -> str:
    """Return a command of tpuctl that runs with this session's target from any folder."""
    config = session.config
    names = [name for name in PINNED if name != "project" or config.target != "sim"]
    variables = {f"TPUCTL_{name.upper()}": config.require(name) for name in names}
    if iap := config.get("iap"):
        variables["TPUCTL_IAP"] = iap
    variables["TPUCTL_SSH_KEY"] = str(session.cloud.ssh.key.absolute())
    variables["TPUCTL_STATE"] = str(state_folder())
    return openssh.proxy_command(variables, arguments)


def _proxy(session: Session, node: Node, worker: int) -> str:
    """Return ours where no address reaches the worker, none on the simulator, else that of the user."""
    if session.cloud.ssh_address(node, worker) is None:
        return proxy_command(session, ["ssh-proxy", node.name, str(worker), "--zone", node.zone])
    return "none" if session.config.target == "sim" else ""


def find(session: Session, host: HostName, workers: WorkerSet) -> Hosts:
    """Return the workers that are to be reached; sends reads only."""
    return calls.find(session, host, workers, session.from_flag("zone"))


def reach(session: Session, hosts: Hosts) -> Hosts:
    """Return the hosts once our key logs in on them; sends something only if it does not yet."""
    with show_steps() as report:
        return calls.reach(session, hosts, report)


@click.command("exec", cls=AfterDashes)
@click.argument("name", required=False, default="")
@click.option("--worker", metavar="WORKERS", help="Workers: all, 0, 1,3 or 0-7. [default: all]")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION", help="End the command after a time such as 90s or 10m."
)
@click.option(
    "--output-dir",
    "folder",
    type=OUTPUT_PATH,
    metavar="FOLDER",
    help="Write the output into files worker-0.out and worker-0.err of this folder, and show none.",
)
@click.option("--raw", is_flag=True, help="Write the bytes of one worker as they come.")
@run_option
@dry_run_option
@with_session
@reaching_options
def execute(
    session: Session, name: str, worker: str | None, timeout: int | None, folder: Path | None, raw: bool,
    run: str | None, dry_run: bool, words: tuple[str, ...],
) -> int | None:  # fmt: skip
    """Run a command on every host of a TPU at once, without input.

    Without NAME, your only TPU; with --run, worker 0 of the run's. One word after -- is a line for the login
    shell; several are a program and its arguments, exactly as they are. The command ends with Ctrl-C, and
    with its connection. The exit code is the worst one: 8 for a host that was lost, else the highest. --json
    has the last 256 kB of each stream.

    \b
    Example:
      tpuctl exec -- uptime
      tpuctl exec n1 --worker 0-3 -- 'ls *.log | wc -l'
      tpuctl exec -- python3 -c 'import jax; jax.print_environment_info()'
      tpuctl exec --run digits-20260131-120000 -- python -m pip list
    """
    if not words:
        raise UsageError("There is no command.", hint="Write it after --: tpuctl exec -- uptime")
    argv: Sequence[str] = words
    if run:
        hosts, entry = find_run(session, run, name, worker)
        argv = (*entry, *command_argv(words))
    else:
        host = host_name(name)
        hosts = find(session, host, chosen_workers(host, worker, ALL_WORKERS))
    if raw and (len(hosts.workers) > 1 or folder or session.as_json):
        raise UsageError("--raw is for one worker, without --json.", hint="Name it: --worker 0")
    if dry_run:
        output.requests(calls.admissions(session, hosts), as_json=session.as_json)
        return None
    hosts = reach(session, hosts)

    def start(take: Callable[[Output], None]) -> Results:
        return calls.execute(session, hosts, argv, take, timeout)

    with ExitStack() as stack:
        files = stack.enter_context(OutputFiles(folder, hosts.workers)) if folder else None
        if session.as_json:
            return _as_json(start, words, files)
        if files:
            results = start(files.take)
            output.note(f"The output is in {folder}.")
        elif raw:
            results = start(write_raw)
        else:
            lines = LinePrinter(hosts.workers)
            stack.callback(lines.close)
            results = start(lines.take)
    return _conclude(results)


def _as_json(
    run: Callable[[Callable[[Output], None]], Results], words: Sequence[str], files: OutputFiles | None
) -> int:
    ends = OutputEnds()
    results = run(files.take if files else ends.take)
    content = {
        "node": results.node,
        "command": list(words),
        "workers": [_worker(end, ends, files) for end in results.ends],
        "worst_worker": results.worst.worker if results.failed else None,
    }
    error = results.error()
    if error:
        error.result = content
        raise error
    output.json(content)
    return _conclude(results)


def _worker(end: Ended, ends: OutputEnds, files: OutputFiles | None) -> dict[str, object]:
    content: dict[str, object] = {"worker": end.worker, "exit_code": end.exit_code}
    if end.error:
        content["error"] = end.error.message
    if files:
        return {
            **content,
            "stdout_file": str(files.path(end.worker, "stdout")),
            "stderr_file": str(files.path(end.worker, "stderr")),
        }
    stdout, stderr = ends.stream(end.worker, "stdout"), ends.stream(end.worker, "stderr")
    return {
        **content,
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        "dropped_bytes": stdout.dropped + stderr.dropped,
    }


def _conclude(results: Results) -> int:
    """Say which worker decides the exit code, and return it; raises the error of a host that was lost."""
    error = results.error()
    if error:
        raise error
    code = results.worst.exit_code or 0
    if code:
        failed, count = results.failed, len(results.ends)
        several = f" {len(failed)} of {count} workers failed: {ranges(failed)}."
        printing.say(
            f"Worker {results.worst.worker} of '{results.node}' ended with exit code {code}."
            + (several if count > 1 else ""),
            label="Error:",
            colour="bold red",
        )
    return code


# Prints the output of workers line by line, each with its worker.


class LinePrinter:
    """Shows lines as they become complete, on the same stream, with the worker if there are several."""

    def __init__(self, workers: Sequence[int]) -> None:
        width = len(str(max(workers)))
        self._labels = {worker: f"[{worker:>{width}}] " if len(workers) > 1 else "" for worker in workers}
        self._streams: dict[tuple[int, Stream], WholeLines] = defaultdict(WholeLines)

    def take(self, output: Output) -> None:
        """Take a piece of output."""
        self._print(
            output.worker, output.stream, self._streams[output.worker, output.stream].feed(output.data)
        )

    def close(self) -> None:
        """Show what has come of lines without an end."""
        for (worker, stream), lines in self._streams.items():
            self._print(worker, stream, lines.end())

    def _print(self, worker: int, stream: Stream, lines: bytes) -> None:
        if lines:
            printing.write_log_lines(lines, self._labels[worker], err=stream == "stderr")


def write_raw(output: Output) -> None:
    """Write a piece of output as it is, to the stream that it was written to."""
    printing.write_bytes(output.data, err=output.stream == "stderr")
