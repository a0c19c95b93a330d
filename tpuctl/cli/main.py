"""Runs the command line: imports the module of one command, and turns errors into text and exit codes.

- The command help.
"""

from __future__ import annotations

import errno
import gc
import importlib
import itertools
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from tpuctl import __version__
from tpuctl.cli import printing
from tpuctl.cli.groups import COMPLETION, CONTEXT, Group
from tpuctl.errors import EXIT_CODES, TpuctlError, UsageError


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, command: tuple[str, ...]) -> object:
    """Show the help of a command, as its --help does; without COMMAND, that of tpuctl.

    \b
    Example:
      tpuctl help data upload
    """
    root = ctx.find_root().command
    return root.main([*command, "--help"], prog_name="tpuctl", standalone_mode=False)


COMMANDS = {
    "up": ("tpuctl.cli.nodes.up", "Create a TPU, or use the existing one, and wait for SSH on every host."),
    "wait": ("tpuctl.cli.runs.cancel", "Wait until a TPU is READY, or until a run has ended."),
    "ls": ("tpuctl.cli.overview", "List TPUs, in every zone."),
    "describe": ("tpuctl.cli.overview", "Show everything that is known of a TPU or a run."),
    "why": ("tpuctl.cli.overview", "Tell the story of a TPU, and what to do now."),
    "down": ("tpuctl.cli.nodes.changes", "Delete TPUs, so that they stop billing."),
    "stop": ("tpuctl.cli.nodes.changes", "Stop a TPU of one host: its chips stop billing, its disk stays."),
    "start": ("tpuctl.cli.nodes.changes", "Start a stopped TPU, and wait for SSH on its host."),
    "extend": ("tpuctl.cli.nodes.changes", "Move the end of a TPU's --ttl."),
    "reap": ("tpuctl.cli.nodes.changes", "Delete TPUs that nobody uses any more."),
    "drill": (
        "tpuctl.cli.runs.drill",
        "Rehearse a maintenance of a TPU, or the loss of the TPU of a run.",
    ),
    "zones": (
        "tpuctl.cli.offers",
        "List zones with TPUs, or those with one type: its quota and its price.",
    ),
    "types": ("tpuctl.cli.offers", "List accelerator types, and the zones that offer them."),
    "runtimes": ("tpuctl.cli.offers", "List runtime versions for 'tpuctl up --runtime'."),
    "price": ("tpuctl.cli.offers", "Show what an accelerator type costs per hour."),
    "cost": ("tpuctl.cli.offers", "Estimate what runs have cost."),
    "data": (
        "tpuctl.cli.datasets.commands",
        "Upload, list, check and remove datasets: TFRecord shards in the bucket.",
    ),
    "ssh": (
        "tpuctl.cli.remote.ssh",
        "Log in on a worker of a TPU with the system's OpenSSH, or run a command.",
    ),
    "forward": ("tpuctl.cli.remote.ssh", "Forward ports of this machine to a worker of a TPU."),
    "ssh-config": (
        "tpuctl.cli.remote.ssh",
        "Print or install entries for 'ssh NAME', VS Code, scp and rsync.",
    ),
    "cp": ("tpuctl.cli.remote.cp", "Copy files to every host of a TPU, or from every host."),
    "exec": ("tpuctl.cli.remote.exec", "Run a command on every host of a TPU at once."),
    "run": (
        "tpuctl.cli.runs.run",
        "Run a script from nothing to its results: create a TPU, submit, follow, pull, and delete the TPU.",
    ),
    "submit": (
        "tpuctl.cli.runs.submit",
        "Copy a project to a TPU and start a script, a module, a notebook or a command of it.",
    ),
    "resubmit": (
        "tpuctl.cli.runs.submit",
        "Start a run again as a new one: the same code, arguments, packages, data and variables.",
    ),
    "diff": (
        "tpuctl.cli.runs.record",
        "Show in what two runs differ: code, arguments, packages, data and results.",
    ),
    "logs": ("tpuctl.cli.runs.logs", "Show the logs of a run, also after its TPU was deleted."),
    "runs": ("tpuctl.cli.runs.runs", "List runs and how they ended."),
    "tag": ("tpuctl.cli.runs.upkeep", "Set tags of a run, or remove them."),
    "note": ("tpuctl.cli.runs.upkeep", "Write a note about a run."),
    "verify": (
        "tpuctl.cli.runs.record",
        "Check whether a folder is the run that it says.",
    ),
    "export": ("tpuctl.cli.runs.record", "Write one archive of a run."),
    "rm": ("tpuctl.cli.runs.upkeep", "Remove runs from the bucket."),
    "watch": ("tpuctl.cli.runs.watch", "Start runs again that were preempted or lost."),
    "cancel": ("tpuctl.cli.runs.cancel", "Stop a run on every host."),
    "pull": ("tpuctl.cli.runs.pull", "Download a run's checkpoints, logs and records, and verify checksums."),
    "init": ("tpuctl.cli.project.init", "Write tpuctl.toml for a Google Cloud project."),
    "config": ("tpuctl.cli.project.init", "Show each setting and where it comes from."),
    "doctor": ("tpuctl.cli.project.doctor", "Check credentials, project, API, zone, buckets and SSH key."),
    "python": (
        "tpuctl.cli.project.python",
        "Put a Python into the bucket, for hosts that cannot reach GitHub.",
    ),
    "sim": ("tpuctl.cli.simulator.commands", "Start, stop and inspect the simulator; inject faults."),
    "completion": (
        "tpuctl.cli.completion.answer",
        "Print the script that completes commands, options and values in a shell.",
    ),
    "help": ("tpuctl.cli.main", "Show the help of a command."),
}
"""Name -> module and help line, so that `tpuctl --help` imports no command."""
HIDDEN = {"ssh-proxy": "tpuctl.cli.remote.ssh"}
"""Name -> module of a command that other programs run, and no list shows."""
ATTRIBUTES = {"help": "show_help", "ssh-config": "ssh_config", "ssh-proxy": "ssh_proxy", "exec": "execute"}
"""Name of a command -> its name in its module, where that is another."""


FOREIGN_WORDS = {
    "submit": "Arguments for the script go after --",
    "resubmit": "Arguments for the script go after --",
    "run": "Arguments for the script go after --",
    "ssh": "Options of ssh, and a command, go after --",
}
"""Name of a command -> hint for an option or an argument that it does not know."""


class CommandTree(Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        path = COMMANDS[cmd_name][0] if cmd_name in COMMANDS else HIDDEN.get(cmd_name)
        if path is None:
            return None
        module = importlib.import_module(path)
        command: click.Command = getattr(module, ATTRIBUTES.get(cmd_name, cmd_name))
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; click takes any BrokenPipeError for the end of who reads our output."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if printing.has_lost_its_reader():
                raise
            raise RuntimeError(f"a connection broke: {error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=CommandTree, invoke_without_command=True, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="tpuctl")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train on Google Cloud TPUs from a laptop; without a project, on a simulator at no cost.

    \b
    Example:
      tpuctl up v3-8
      tpuctl data upload digits ./digits
      tpuctl submit jobs/digits.py
      tpuctl logs -f
      tpuctl pull
      tpuctl down
    """
    if ctx.invoked_subcommand is None:
        from tpuctl.cli.project.init import welcome  # not needed for any command

        welcome()


GARBAGE = 50_000
"""Objects after which Python looks for garbage: 150 looks at what is imported, and is none, take 30 ms."""


def main() -> NoReturn:
    """Run the command line and exit with the code that the README states.

    Exits without Python's cleanup of imported modules, which is a sixth of the time of `tpuctl ls`: every
    client and file is closed by now.
    """
    gc.set_threshold(GARBAGE)
    printing.open_closed_streams()
    code = _complete() if COMPLETION in os.environ else _run_guarded()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, printing.OutputError):
            pass
    os._exit(code)


def _complete() -> int:
    from tpuctl.cli.completion.answer import answer  # a shell asks, and no command runs

    return answer()


def _run_guarded() -> int:
    printing.guard()
    defaults = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    for number, default in defaults.items():
        if signal.getsignal(number) is default:  # not so under nohup, which ignores SIGHUP
            signal.signal(number, _end_process_on_signal)
    return run(sys.argv[1:])


def _end_process_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """End the command, and show no errors of `__del__`: a client that was half made cannot close itself."""
    sys.unraisablehook = lambda _: None
    end_on_signal(number, frame)


def end_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """End the command as Ctrl-C does: it says what may bill; `timeout` and CI services send SIGTERM, a closed
    terminal SIGHUP.
    """
    raise KeyboardInterrupt


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error becomes text here and nowhere else."""
    as_json = "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)
    try:
        result = cli.main(arguments, prog_name="tpuctl", standalone_mode=False, obj=tuple(arguments))
        printing.flush()
        return result if isinstance(result, int) else 0
    except TpuctlError as error:
        return _show(error, as_json=as_json)
    except click.ClickException as error:
        return _show_usage(error, as_json=as_json)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__context__, EOFError):  # click's Abort is for Ctrl-C and for any EOFError
            return _show_bug(error.__context__, arguments, as_json=as_json)
        printing.write("Interrupted.", err=True)
        return EXIT_CODES["interrupted"]
    except (BrokenPipeError, SystemExit):
        # The reader has gone (`tpuctl logs | head`), which click turns into an exit; the flush at the end
        # must not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            shown = UsageError(f"{error.strerror}: {error.filename}", hint="Give another path.")
            return _show(shown, as_json=as_json)
        return _show_bug(error, arguments, as_json=as_json)


def _show(error: TpuctlError, *, as_json: bool) -> int:
    if as_json:
        _print_json(error)
    _say(error.message, error.hint)
    return error.exit_code


def _say(message: str, hint: str = "") -> None:
    printing.say(message, label="Error:", colour="bold red")
    if hint:
        printing.show_command(hint, label="Hint:", colour="cyan")


def _print_json(error: TpuctlError) -> None:
    """Print an error as JSON: in one line, as in a stream, unless the command has a result to show.

    Where stdout takes nothing more, stderr says it alone.
    """
    from tpuctl.cli import output  # msgspec: not for the help

    if isinstance(error, printing.OutputError):
        return
    body = {"kind": error.kind, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    show = output.json if error.result else output.json_line
    try:
        show({**error.result, "error": {**body, **error.facts}})
    except printing.OutputError:
        pass


def _show_usage(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        printing.write_block(error.format_message(), err=True)
        return EXIT_CODES["usage"]
    if isinstance(error, click.NoSuchOption):
        from tpuctl.cli.hints import with_known_option  # only on the way to an error

        error = with_known_option(error)
    if as_json:
        _print_json(UsageError(error.format_message()))
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context:
        help_command = f"{context.command_path} --help"
        printing.write_block(f"{context.get_usage()}\nTry '{help_command}' for help.\n", err=True)
    is_foreign = isinstance(error, click.NoSuchOption) or "unexpected extra" in error.format_message()
    name = context.info_name if context and is_foreign else None
    _say(error.format_message(), FOREIGN_WORDS.get(name or "", ""))
    return EXIT_CODES["usage"]


def _show_bug(error: Exception, arguments: list[str], *, as_json: bool) -> int:
    """A bug: the traceback goes to a file, the user gets its path."""
    from tpuctl.cli.crash_report import CrashReport  # only on the way to an error

    report = CrashReport(error, arguments)
    if as_json:
        _print_json(TpuctlError(report.summary))
    _say(report.summary)
    try:
        printing.write(f"Hint: please report it with the file {report.write()}", err=True)
    except OSError:
        printing.write_block(report.text, err=True)
    return EXIT_CODES["bug"]
