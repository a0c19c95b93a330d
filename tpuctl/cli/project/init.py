"""The command init: writes tpuctl.toml from options, Terraform's outputs, or answers.

- The command config show.
- Prints the text of `tpuctl` without a command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import msgspec

from tpuctl import __version__, accelerators, printable
from tpuctl.atomic_files import replace_file
from tpuctl.cli import output, printing
from tpuctl.cli.groups import Group
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import LOCAL_PATH
from tpuctl.config import Config, Value, load
from tpuctl.config.files import FILE_NAME
from tpuctl.config.layers import gcloud_settings
from tpuctl.config.settings import SETTINGS, normalize
from tpuctl.config.subnetworks import SUBNETWORKS, parted
from tpuctl.errors import ConfigError, ConflictError, TpuctlError, UsageError, in_one_line
from tpuctl.flows.project import doctor, terraform
from tpuctl.flows.project.rights import DEFAULT_ACCOUNT

QUESTIONS = {
    "project": "Google Cloud project",
    "zone": "Zone of the TPUs",
    "bucket": "Bucket for datasets and runs",
}
"""The settings without which nothing runs on Google Cloud, and the question for each."""

LESS_RIGHTS = (
    'terraform/ makes one that reads datasets, and overwrites no run records (protection = "records") or no '
    'complete checkpoints either ("checkpoints").'
)
"""What to choose instead of the default account."""


@click.command()
@click.option("--project", help="Google Cloud project id.")
@click.option("--zone", help="Zone of the TPUs, such as europe-west4-a.")
@click.option("--bucket", help="Bucket for datasets and runs, in the zone's region.")
@click.option("--data-bucket", help="Bucket for datasets, when it is another one.")
@click.option("--network", help="VPC network of the TPU VMs.")
@click.option("--subnetwork", help="Subnetwork of the TPU VMs.")
@click.option("--external-ips", help="Whether TPU VMs have external addresses: yes or no.")
@click.option("--iap/--no-iap", default=None, help="Reach hosts through Identity-Aware Proxy, or not.")
@click.option("--service-account", help="Service account of the TPU VMs.")
@click.option(
    "--from-terraform",
    "source",
    type=LOCAL_PATH,
    help="Folder where terraform/ was applied, or a file (-: stdin) of 'terraform output -json'.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(source: Path | None, force: bool, iap: bool | None, **options: str | None) -> None:
    """Write tpuctl.toml for a Google Cloud project: from options, Terraform's outputs, or your answers.

    \b
    Example:
      tpuctl init --project my-project --zone europe-west4-a --bucket my-bucket
      tpuctl init --from-terraform terraform/examples/minimal
    """
    path = Path(FILE_NAME)
    if os.path.lexists(path) and not force:  # a link to nothing, too: its target would be made
        raise ConflictError(f"{path.resolve()} exists already.", hint="Edit it, or replace it with --force.")
    options["iap"] = None if iap is None else str(iap)
    typed = {name: normalize(name, value) for name, value in options.items() if value is not None}
    values = _read_terraform(source) | typed if source else _ask_missing(typed)
    _write(path, values)
    output.note(f"Wrote {path.resolve()}; commands below this folder use project {values['project']} now.")
    if values["zone"] not in accelerators.zones():
        output.note(f"No TPUs are known in {values['zone']}: run 'tpuctl doctor' to ask the API.")
    if "service_account" not in values:
        output.note(f"{DEFAULT_ACCOUNT}. {LESS_RIGHTS}")
    output.hint("tpuctl doctor")


def _read_terraform(source: Path) -> dict[str, str]:
    """The settings of Terraform's outputs, and unless they come from a pipe, their source for 'doctor'."""
    values = terraform.read(Path("/dev/stdin") if str(source) == "-" else source)
    is_lasting = source.is_dir() or (source.is_file() and source.parent != Path("/dev"))
    if source.is_dir():
        doctor.allow(source)
    return {**values, "terraform": normalize("terraform", _place_of(source))} if is_lasting else values


def _place_of(source: Path) -> str:
    """Return a place in this checkout as seen from here, for the file is committed; any other as typed."""
    here, place = Path.cwd(), source.absolute()
    checkout = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return os.path.relpath(place, here) if place.is_relative_to(checkout) else str(source)


def _ask_missing(values: Mapping[str, str]) -> dict[str, str]:
    """Ask on stderr for required settings without a value, again after an explanation if malformed."""
    defaults, _ = gcloud_settings(os.environ)
    answers = dict(values)
    for name, question in QUESTIONS.items():
        if name not in answers:
            default = f"{answers['project']}-tpuctl" if name == "bucket" else defaults.get(name)
            answers[name] = printing.prompt(question, default, _parser(name))
    return answers


def _parser(name: str) -> Callable[[str], str]:
    def parse(answer: str) -> str:
        try:
            return normalize(name, answer)
        except UsageError as error:
            raise click.UsageError(printable.line(in_one_line(error))) from error

    return parse


def _write(path: Path, values: Mapping[str, str]) -> None:
    lines = [f"{name} = {_toml(name, value)}\n" for name, value in values.items()]
    content = "".join(["# tpuctl: see 'tpuctl config show'\n", *lines])
    try:
        replace_file(path.resolve(), [content.encode()], fsync=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", hint="Go to another folder."
        ) from error


def _toml(name: str, value: str) -> str:
    if name != SUBNETWORKS:
        return _quoted(value)
    pairs = (f"{region} = {_quoted(subnetwork)}" for region, subnetwork in parted(value).items())
    return f"{{ {', '.join(pairs)} }}"


def _quoted(value: str) -> str:
    """A TOML basic string; JSON's quoting is a subset of it."""
    return msgspec.json.encode(value).decode()


@click.group(cls=Group)
def config() -> None:
    """Show each setting and where it comes from."""


@config.command()
@with_session
def show(session: Session) -> None:
    """Show each setting's value and where it comes from, and the files that were read.

    The project's file is the nearest tpuctl.toml, here or above, or the file that TPUCTL_CONFIG names.

    \b
    Example:
      tpuctl config show
    """
    values = {name: _checked(session.config, name) for name in SETTINGS}
    if session.as_json:
        settings = {name: {"value": value.value, "origin": value.origin} for name, value in values.items()}
        output.json({"settings": settings, "files": session.config.files})
        return
    rows = [(name, setting.value or "-", setting.origin) for name, setting in values.items()]
    output.table(("SETTING", "VALUE", "ORIGIN"), rows)
    output.note(f"Files that were read: {', '.join(session.config.files) or 'none'}.")


def _checked(config: Config, name: str) -> Value:
    """Return a setting as commands use it; warn if they would refuse it."""
    setting = config.values[name]
    try:
        return Value(config.get(name), setting.origin)
    except TpuctlError as error:
        output.note(f"Warning: {in_one_line(error)}")
        return setting


def welcome() -> None:
    """Print where commands would run, and the commands to start with."""
    printing.write(f"tpuctl {__version__}: train on Google Cloud TPUs from a laptop.")
    printing.write()
    printing.write(_target(load({})))
    printing.write()
    printing.write("  tpuctl up v3-8     create a TPU; each command names the next one")
    printing.write("  tpuctl init        configure a Google Cloud project")
    printing.write("  tpuctl doctor      check packages, settings, credentials and access")
    printing.write("  tpuctl --help      all commands")


def _target(config: Config) -> str:
    if config.target == "gcp":
        return f"Commands run on Google Cloud, project {config.get('project')} (see 'tpuctl config show')."
    reason = config.values["target"].origin.removeprefix("default: ")
    return f"Commands run on the simulator ({reason}): local, at no cost."
