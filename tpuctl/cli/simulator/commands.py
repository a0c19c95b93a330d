"""Groups the sim commands."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from tpuctl import faults, shells
from tpuctl.cli import output, printing
from tpuctl.cli.groups import Group
from tpuctl.cli.session import confirm, yes_option
from tpuctl.cli.simulator.faults import fault, show_faults
from tpuctl.cli.value_types import LOCAL_PATH
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator.event_log import Event, EventLog, SimulatorLog
from tpuctl.cloud.simulator.event_log import follow as following
from tpuctl.cloud.simulator.event_log import last as last_of
from tpuctl.cloud.simulator.process import ControlClient
from tpuctl.errors import StateError, UsageError
from tpuctl.images import IMAGES
from tpuctl.simulator_folder import PROGRAMS

LABELS = {
    "tpu_grpc": "Cloud TPU API (gRPC)",
    "tpu_rest": "Cloud TPU API (REST)",
    "storage": "Cloud Storage",
}
"""Field of the JSON form -> its label in the text form, where they differ."""
OF_IMAGES = ", ".join(sorted({each.python for each in IMAGES.values()}))
PYTHONS = {
    "machine": f"{platform.python_version()}, this machine's; that of images is {OF_IMAGES}: "
    "tpuctl sim start --python image",
    "image": f"{OF_IMAGES}, that of each image; jobs really install what they require",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def status(as_json: bool) -> None:
    """Show whether the simulator runs, and the addresses of its services.

    \b
    Example:
      tpuctl sim status
    """
    endpoints = simulator.running(simulator_folder())
    if endpoints:
        show_endpoints(endpoints, as_json=as_json)
    elif as_json:
        output.json({"running": False})
    else:
        output.note("The simulator is not running.")
        output.hint("tpuctl sim start")


def show_endpoints(endpoints: simulator.PublishedEndpoints, *, as_json: bool) -> None:
    """Print the addresses of a running simulator."""
    fields = {
        "running": True,
        "pid": endpoints.pid,
        "project": endpoints.project,
        "bucket": endpoints.bucket,
        "tpu_grpc": endpoints.tpu_grpc,
        "tpu_rest": endpoints.tpu_rest,
        "storage": endpoints.storage,
        "egress": endpoints.egress,
        "external_ips": endpoints.external_ips,
        "iam": endpoints.iam or None,
        "default_account": endpoints.default_account,
        "firewall": endpoints.firewall,
        "python": endpoints.python,
        "folder": str(simulator_folder()),
    }
    if as_json:
        output.json(fields)
    else:
        fields["iam"] = f"enforced, this shell as {endpoints.iam}" if endpoints.iam else "not enforced"
        fields["python"] = PYTHONS[endpoints.python]
        output.facts({LABELS.get(name, name): value for name, value in fields.items()})


# The commands sim start, stop and reset.


@click.command()
@click.option(
    "--scenario",
    type=LOCAL_PATH,
    metavar="FILE",
    help="Add the faults in this TOML file; they replace those of an earlier scenario.",
)
@click.option(
    "--egress",
    type=click.Choice(["pass", "refuse"]),
    help="Pass traffic from hosts to addresses that are not simulated, such as a package index (default), or "
    "refuse it as a firewall does; until the simulator stops.",
)
@click.option(
    "--no-external-ips",
    is_flag=True,
    help="Give no TPU VM an external address, whatever is asked for: hosts are reached through "
    "Identity-Aware Proxy alone; until the simulator stops.",
)
@click.option(
    "--iam",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Enforce roles: Google's default ones, and those in FILE, the output of 'terraform show -json'.",
)
@click.option(
    "--iam-user",
    metavar="MEMBER",
    help="With --iam, run programs outside the hosts as this account, such as user:ada@example.com "
    "(default: an owner of the project).",
)
@click.option(
    "--default-account",
    type=click.Choice(["editor", "none"]),
    help="Make Google's default service account an Editor of the project (default), or give it no role, as "
    "new organizations do; with none, roles are enforced as with --iam.",
)
@click.option(
    "--firewall",
    type=click.Choice(["open", "closed"]),
    help="Let SSH from outside in, as a new network does (default), or not, until a rule does.",
)
@click.option(
    "--python",
    type=click.Choice(["machine", "image"]),
    help="Give hosts this machine's Python, with links to packages of this machine (default), or that of "
    "their image, which really installs what a job requires; until the simulator stops.",
)
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def start(
    scenario: Path | None,
    egress: str | None,
    default_account: str | None,
    firewall: str | None,
    no_external_ips: bool,
    iam: str | None,
    iam_user: str | None,
    python: str | None,
    as_json: bool,
) -> None:
    """Start the simulator, if it does not run; other commands start it by themselves.

    \b
    Example:
      tpuctl sim start --scenario rehearsal.toml
      tpuctl sim start --no-external-ips
      tpuctl sim start --default-account none --firewall closed
      tpuctl sim start --python image
      tpuctl sim start --iam iam.json --iam-user user:ada@example.com
      tpuctl sim start
    """
    if iam_user is not None and iam is None:
        raise UsageError("--iam-user is for roles that are enforced.", hint="Add --iam.")
    rehearsed = faults.load_scenario(scenario) if scenario else None  # its mistakes, before anything starts
    modes = {"egress": egress, "default_account": default_account, "firewall": firewall, "python": python}
    options = {"--iam": _absolute(iam), "--iam-user": iam_user}
    options |= {f"--{name.replace('_', '-')}": value for name, value in modes.items()}
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    given += ["--no-external-ips"] if no_external_ips else []
    endpoints = simulator.ensure(simulator_folder(), *given)
    _check_modes(modes, endpoints)
    if no_external_ips and endpoints.external_ips:
        raise _runs_already("and gives external addresses")
    _check_iam(iam, iam_user, endpoints.iam)
    if python not in (None, endpoints.python):
        raise _runs_already(f"with --python {endpoints.python}")
    if rehearsed:
        added = ControlClient(simulator_folder()).add(rehearsed.faults, rehearsed.name)
        show_faults(added, err=True)
    show_endpoints(endpoints, as_json=as_json)


@click.command()
def stop() -> None:
    """Stop the simulator and every process on its hosts; its nodes and buckets stay on disk.

    \b
    Example:
      tpuctl sim stop
    """
    folder = simulator_folder()
    if simulator.stop(folder):
        output.note("The simulator has stopped.")
        return
    output.note("The simulator was not running.")
    ended = simulator.end_orphans(folder)
    if ended:
        programs = f"{ended} program{'s' if ended > 1 else ''}"
        output.note(f"It had been killed: {programs} still running on its hosts ended.")


@click.command()
@yes_option
def reset(yes: bool) -> None:
    """Stop the simulator and delete its state: nodes, the files of their hosts, buckets, faults, events.

    \b
    Example:
      tpuctl sim reset
    """
    folder = simulator_folder()
    if not folder.exists():
        output.note("The simulator has no state.")
        return
    output.facts({"delete": f"everything in {folder}"}, err=True)
    confirm("Delete it?", yes=yes)
    simulator.reset(folder)
    output.note("The simulator has stopped, and its state is deleted.")


def _check_modes(modes: Mapping[str, str | None], endpoints: simulator.PublishedEndpoints) -> None:
    for name, requested in modes.items():
        actual = getattr(endpoints, name)
        if requested not in (None, actual):
            raise _runs_already(f"with --{name.replace('_', '-')} {actual}")


def _absolute(file: str | None) -> str | None:
    """The simulator has another working folder."""
    return str(Path(file).resolve()) if file else file


def _check_iam(file: str | None, user: str | None, enforced_for: str) -> None:
    """Refuse to pass over --iam when a simulator without it, or for another user, runs already."""
    if file is not None and (not enforced_for or user not in (None, enforced_for)):
        raise _runs_already(f"as {enforced_for}" if enforced_for else "without --iam")


def _runs_already(how: str) -> StateError:
    return StateError(
        f"The simulator runs already, {how}.",
        hint="'tpuctl sim stop' ends it, and every program on its hosts.",
    )


# The command sim env: prints shell code that points the clients in a shell to the simulator.
PROGRAM = """
from importlib.util import find_spec
raise SystemExit(0 if find_spec("httplib2") and not find_spec("socks") else 1)
"""
PATIENCE = 20.0
"""Seconds for a Python to start; one that takes longer is not looked into."""
PYSOCKS = (
    "Warning: the python3 in PATH has httplib2 without PySocks: google-api-python-client and SkyPilot will "
    "end with SSLCertVerificationError. To use them: python3 -m pip install PySocks"
)


@click.command()
@click.option("--shell", type=click.Choice(sorted(shells.SHELLS)), help="Shell syntax; by default $SHELL's.")
@click.option("--unset", is_flag=True, help="Restore the earlier values.")
@click.option("--json", "as_json", is_flag=True, help="Show names and values as JSON.")
def env(shell: str | None, unset: bool, as_json: bool) -> None:
    """Print shell code that points clients to the simulator, and start the simulator if it does not run.

    Clients are gcloud, gsutil, gcsfs, google-cloud-*, tensorstore, TensorFlow, ssh, scp and tpuctl itself.

    \b
    Example:
      tpuctl sim env --json
      tpuctl sim env --shell fish | source
      eval "$(tpuctl sim env --unset)"
      eval "$(tpuctl sim env)"
    """
    changes = _restored() if unset else _variables(save=not as_json)
    if as_json:
        output.json({"environment": changes})
        return
    syntax = shells.SHELLS[shell or shells.login_shell(os.environ)]
    for name, value in changes.items():
        printing.write_code(syntax.assignment(name, value))
    command = f"tpuctl sim env{f' --shell {shell}' if shell else ''}{' --unset' if unset else ''}"
    if not unset and lacks_pysocks(os.environ):
        output.note(PYSOCKS)
    printing.write_code(f"# To apply it to this shell: {syntax.apply.format(command=command)}")


def _variables(*, save: bool) -> Mapping[str, str]:
    endpoints = simulator.ensure(simulator_folder())
    variables = {**endpoints.environment, "TPUCTL_TARGET": "sim"}
    if not save:
        return variables
    path = shells.with_folder(_path_without_programs(), variables[PROGRAMS])
    return {**shells.changes_to_set(variables, os.environ), "PATH": path}


def _restored() -> Mapping[str, str | None]:
    changes = shells.changes_to_restore(os.environ)
    if not changes:
        hint = 'eval "$(tpuctl sim env)"'
        raise StateError("This shell's clients were not pointed to the simulator.", hint=hint)
    return {**changes, "PATH": _path_without_programs()}


def _path_without_programs() -> str:
    """Return PATH without the programs of the simulator that the shell was pointed to."""
    path = os.environ.get("PATH", os.defpath)
    return shells.without_folder(path, os.environ[PROGRAMS]) if os.environ.get(PROGRAMS) else path


def lacks_pysocks(environ: Mapping[str, str]) -> bool:
    """Whether the Python of a shell has httplib2 without PySocks, with which alone httplib2 uses proxies."""
    python = shutil.which("python3", path=environ.get("PATH"))
    if python is None:
        return False
    try:
        looked = subprocess.run(
            [python, "-c", PROGRAM],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return looked.returncode == 0


# The command sim events.
KINDS = ["request", "transition", "fault", "notice"]


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new events until the simulator stops.")
@click.option(
    "--tail", "--last", "last", type=click.IntRange(0), metavar="N", help="Begin with the last N events."
)
@click.option("--kind", type=click.Choice(KINDS), help="Only events of this kind.")
@click.option("--json", "as_json", is_flag=True, help="Show one JSON object a line.")
def events(follow: bool, last: int | None, kind: str | None, as_json: bool) -> None:
    """Show every request, transition and fault in the simulator in order, also from before a restart.

    \b
    Example:
      tpuctl sim events --follow --kind fault
    """
    folder = simulator_folder()
    log = EventLog(folder)

    def new() -> list[Event]:
        return [event for event in log.new() if kind in (None, event.kind)]

    _show(last_of(new(), last), as_json=as_json)
    if follow:
        _show(following(new, lambda: simulator.running(folder) is not None), as_json=as_json)


def _show(shown: Iterable[Event], *, as_json: bool) -> None:
    for event in shown:
        if as_json:
            output.json_line(msgspec.structs.asdict(event))
        else:
            printing.write(_line(event))


def _line(event: Event) -> str:
    time = datetime.fromtimestamp(event.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    line = f"{time}  {event.service:<8} {event.kind:<10} {event.what:<22} {event.resource}  {event.detail}"
    return line.rstrip()


# The command sim logs.


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until the simulator stops.")
@click.option(
    "--tail", "--last", "last", type=click.IntRange(0), metavar="N", help="Begin with the last N lines."
)
def logs(follow: bool, last: int | None) -> None:
    """Show the errors of the simulator itself; 'tpuctl sim events' shows what happened in it.

    \b
    Example:
      tpuctl sim logs --follow
    """
    folder = simulator_folder()
    log = SimulatorLog(folder)
    lines = log.new()
    if not lines:
        output.note(f"{log.path} has no lines: nothing went wrong.")
    for line in last_of(lines, last):
        printing.write_log_line(line)
    if follow:
        for line in following(log.new, lambda: simulator.running(folder) is not None):
            printing.write_log_line(line)


COMMANDS = (start, stop, reset, status, logs, env, fault, events)


@click.group(cls=Group)
def sim() -> None:
    """Start, stop and inspect the simulator; inject faults.

    It serves the Cloud TPU API, Cloud Storage and TPU hosts on this machine.
    """


for command in COMMANDS:
    sim.add_command(command)
