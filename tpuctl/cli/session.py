"""Gives a command its session: configuration, clients, and the options that select them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tpuctl.cli import printing
from tpuctl.client.context import Context
from tpuctl.config import Config, load
from tpuctl.config.files import FILE_NAME, VARIABLE, set_project
from tpuctl.errors import DeclinedError, joined_hints
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.cli.completion.answer import ListedNames


from threading import Lock

from tpuctl.cli import output

MOST = 20
"""Lines of one command."""
Command = TypeVar("Command", bound=Callable[..., object])

DISPLAY = ("--yes", "-y", "--json", "--debug", "--dry-run")
"""Options that do not say what a command does."""


class Session(Context):
    """One command's configuration and clients."""

    warn: WarningLines
    """Takes a line about each object of the bucket that is left out."""

    def __init__(self, config: Config, *, as_json: bool, changes: bool = False) -> None:
        """`changes` says whether the command changes something in the cloud."""
        super().__init__(config, WarningLines(), self.announce)
        self._changes = changes
        self.as_json = as_json
        self._announced = False

    def announce(self) -> None:
        """Say once, on stderr, where the command runs: on the simulator, or where it may bill."""
        if self.config.target == "sim" and not self._announced:
            printing.say("[sim] simulated TPUs and storage on this machine: nothing bills")
            for path, names in self._unused().items():
                printing.say(f"[sim] not used: {', '.join(names)} of {path} (see 'tpuctl config show')")
        elif self._changes and not self._announced:
            printing.say(f"[gcp] {self.config.require('project')}: this bills")
        self._announced = True

    def require_chosen_project(self) -> None:
        """Ask whether the command may bill in a project that only gcloud's own file names.

        `--yes` answers another question. Raises DeclinedError for a no, ConfigError without a terminal.
        """
        if not self._changes or self.config.is_project_chosen:
            return
        project = self.config.require("project")
        if not sys.stdin.isatty():
            hint = joined_hints(
                f"Name it: {again(self._words, {'--project': project})}",
                f"Name it for this shell: export TPUCTL_PROJECT={project}",
            )
            raise self.unchosen_project(hint)
        if not printing.confirm(f"gcloud's configuration names project '{project}'. Use it? It bills."):
            raise DeclinedError(
                "Declined: nothing was done.", hint="The simulator bills nothing: --target sim"
            )
        found = [Path(file) for file in self.config.files if Path(file).name == FILE_NAME]
        path = found[0] if found else Path(FILE_NAME).absolute()
        if VARIABLE not in os.environ and printing.confirm(f"Write it to {path}, and not ask again?"):
            set_project(path, project)

    def keep_quiet(self) -> None:
        """Leave the simulator's announcement out: another program runs the command, and has said where."""
        self._announced = True

    def _unused(self) -> dict[str, list[str]]:
        """The settings of each file of tpuctl that the simulator does not use; gcloud's are for gcloud."""
        by_file: dict[str, list[str]] = {}
        for name, value in self.config.unused.items():
            if value.origin in self.config.files and name != "data_bucket":
                by_file.setdefault(value.origin, []).append(name)
        return by_file

    @cached_property
    def listed(self) -> ListedNames:
        """The names that the shell's completion offers: commands that list, make or delete keep them."""
        from tpuctl.cli.completion.answer import ListedNames  # not every command lists

        return ListedNames(self.config)

    @cached_property
    def time(self) -> datetime:
        """The time by which nodes are dated, when the command first needs it."""
        return self.now()

    @cached_property
    def typed(self) -> tuple[str, ...]:
        """The words of this command line that say what it does, secrets masked; none if nobody typed it."""
        words = self._words
        end = words.index("--") if "--" in words else len(words)
        return (*(word for word in words[:end] if word not in DISPLAY), *words[end:])

    @cached_property
    def _words(self) -> tuple[str, ...]:
        from tpuctl.masking import masked_arguments  # not always needed

        return masked_arguments(click.get_current_context().obj or ()).arguments

    def close(self) -> None:
        """Close the clients, when any were built, and say how many warnings were not shown."""
        self.warn.close()
        super().close()


def with_session(command: Command) -> Command:
    """Give a command the options of its target and --json, and pass it a Session as first argument."""
    return _with_options(command, OPTIONS)


def with_zones(command: Command) -> Command:
    """Do the same with a --zone that may be repeated; the command gets `zones`, as they are typed."""
    return _with_options(command, [ZONES if option is ZONE else option for option in OPTIONS])


def _with_options(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    @functools.wraps(command)
    def wrapper(
        target: str | None,
        project: str | None,
        bucket: str | None,
        as_json: bool,
        debug: bool,
        zone: str | None = None,
        iap: bool | None = None,
        host_keys: str | None = None,
        cross_region: bool = False,
        **parameters: object,
    ) -> object:
        flags = {"target": target, "project": project, "zone": zone, "bucket": bucket}
        flags["host_keys"], flags["cross_region"] = host_keys, "yes" if cross_region else None
        flags["iap"] = None if iap is None else ("yes" if iap else "no")
        changes = parameters.get("dry_run") is False  # what changes something has --dry-run
        session = Session(load(flags), as_json=as_json, changes=changes)
        with _shown_requests() if debug else nullcontext():
            try:
                session.require_chosen_project()
                with printing.without_reader() if changes else nullcontext():
                    return command(session, **parameters)
            finally:
                session.close()

    decorated: Command = wrapper  # type: ignore[assignment]  # the wrapper stands for the command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _shown_requests() -> AbstractContextManager[None]:
    from tpuctl.cloud import request_log  # only with --debug

    return request_log.showing(lambda line: printing.write(f"[debug] {line}", err=True))


ZONE = click.option("--zone", help="Zone of the TPUs.")
ZONES = click.option(
    "--zone",
    "zones",
    multiple=True,
    help="Zone or region of the TPU, or 'any'; several are tried in this order.",
)
OPTIONS = (
    click.option(
        "--target",
        type=click.Choice(["gcp", "sim"]),
        help="Google Cloud (gcp) or the simulator (sim); default: gcp if a project is configured.",
    ),
    click.option("--project", help="Google Cloud project."),
    ZONE,
    click.option("--bucket", help="Bucket of datasets and runs."),
    click.option("--json", "as_json", is_flag=True, help="Show the result as JSON."),
    click.option(
        "--debug", is_flag=True, envvar="TPUCTL_DEBUG", help="Show each request, a line each, on stderr."
    ),
)


def reaching_options(command: Command) -> Command:
    """Give a command that reaches hosts the options that say how; below `with_session`."""
    for option in reversed(_REACHING):
        command = option(command)
    return command


_REACHING = (
    click.option(
        "--iap/--no-iap",
        default=None,
        help="Reach hosts through Identity-Aware Proxy, or not; default: those without an external address.",
    ),
    click.option(
        "--host-keys",
        type=click.Choice(["published", "first-contact"]),
        metavar="WHICH",
        help="Trust the 'published' keys of hosts, or, where a policy forbids guest attributes, that of the "
        "'first-contact'; default: published.",
    ),
)
cross_region_option = click.option(
    "--cross-region",
    is_flag=True,
    help="Read a bucket in another region than the TPU, and pay for the traffic.",
)
"""Below `with_session`, of a command that makes a TPU or starts a run."""
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the requests that would be sent, and send none."
)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an act that costs or deletes; raises DeclinedError for a no, or without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise DeclinedError("Confirmation is needed, and the command is not interactive.", hint="Pass --yes.")
    if not printing.confirm(question):
        raise DeclinedError("Declined: nothing was done.")


# Prints warnings on stderr, each once, and after the first few only their number.


class WarningLines:
    """The warnings of one command; call it with a line, from any thread."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._lock = Lock()

    def __call__(self, line: str) -> None:
        """Print a line unless it was printed before, or there were too many."""
        with self._lock:
            if line not in self._lines:
                self._lines.add(line)
                if len(self._lines) <= MOST:
                    output.note(f"Warning: {line}")

    def close(self) -> None:
        """Print how many lines were left out."""
        if (more := len(self._lines) - MOST) > 0:
            output.note(f"Warning: {more} more like these.")
