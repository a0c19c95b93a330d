"""init, config, doctor, and the first contact."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import msgspec

from tpuctl import __version__, accelerators
from tpuctl.cli import output
from tpuctl.cli.session import Session, with_session
from tpuctl.config.gcloud import gcloud_settings
from tpuctl.config.resource_names import checked
from tpuctl.config.settings import FILE_NAME, SETTINGS, load
from tpuctl.errors import ConfigError, ConflictError, UsageError
from tpuctl.files import replace_file
from tpuctl.flows.project import doctor as flow
from tpuctl.flows.project import terraform

QUESTIONS = {
    "project": "Google Cloud project",
    "zone": "Zone of the TPUs",
    "bucket": "Bucket for datasets and runs",
}
MARKS = {flow.OK: "ok", flow.WARNING: "warning", flow.FAILED: "FAILED", flow.SKIPPED: "skipped"}


def welcome() -> None:
    """Say where commands would run and how to start."""
    config = load({})
    print(f"tpuctl {__version__}: train on Google Cloud TPUs from a laptop.\n")
    if config.target == "sim":
        reason = config.values["target"].origin.removeprefix("default: ")
        print(f"Commands run on the simulator ({reason}): local, at no cost.\n")
    else:
        print(f"Commands run on Google Cloud, project {config.get('project')} (see 'tpuctl config show').\n")
    print("  tpuctl up v3-8     create a TPU, and go on from there: each command names the next")
    print("  tpuctl init        configure a Google Cloud project")
    print("  tpuctl doctor      check that everything is in place")
    print("  tpuctl --help      all commands")


@click.command()
@click.option("--project", help="Google Cloud project id.")
@click.option("--zone", help="Zone of the TPUs, such as europe-west4-a.")
@click.option("--bucket", help="Bucket for datasets and runs, in the zone's region.")
@click.option("--data-bucket", help="Bucket for datasets, when it is another one.")
@click.option("--network", help="VPC network of the TPU VMs.")
@click.option("--subnetwork", help="Subnetwork of the TPU VMs.")
@click.option("--external-ips", help="Whether TPU VMs have external addresses: yes or no.")
@click.option("--service-account", help="Service account of the TPU VMs.")
@click.option(
    "--from-terraform",
    "source",
    type=click.Path(path_type=Path),
    help="Folder where terraform/ was applied, or a file (-: stdin) of 'terraform output -json'.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(source: Path | None, force: bool, **typed: str | None) -> None:
    """Write tpuctl.toml for a Google Cloud project: asks, or takes options, or reads what Terraform made.

    \b
    Example:
      tpuctl init --project my-project --zone europe-west4-a --bucket my-bucket
      tpuctl init --from-terraform terraform/examples/minimal
    """
    path = Path(FILE_NAME)
    if path.exists() and not force:
        raise ConflictError(f"{path.resolve()} exists already.", hint="Edit it, or replace it with --force.")
    given = {name: checked(name, value) for name, value in typed.items() if value is not None}
    values = _made(source) | given if source else _asked(given)
    _write(path, values)
    output.note(f"Wrote {path.resolve()}; commands below this folder use project {values['project']} now.")
    if values["zone"] not in accelerators.zones():
        output.note(f"No TPU has been seen in {values['zone']}: 'tpuctl doctor' asks the API.")
    output.hint("tpuctl doctor")


@click.group()
def config() -> None:
    """Settings and where they come from."""


@config.command("show")
@with_session
def config_show(session: Session) -> None:
    """Show each setting's value and where it comes from.

    \b
    Example:
      tpuctl config show
    """
    values = session.config.values
    if session.as_json:
        output.json(
            {"settings": {name: {"value": one.value, "origin": one.origin} for name, one in values.items()}}
        )
        return
    rows = [(name, values[name].value or "-", values[name].origin) for name in SETTINGS]
    output.table(("SETTING", "VALUE", "ORIGIN"), rows)


@click.command()
@with_session
def doctor(session: Session) -> None:
    """Check packages, credentials, project, API, zone, buckets, network and SSH key, in this order.

    What Terraform made is compared with the settings, when 'tpuctl init --from-terraform' wrote them.

    \b
    Example:
      tpuctl doctor
    """
    session.announce()
    findings = []
    for finding in flow.examine(session.config, lambda: session.cloud):
        findings.append(finding)
        if not session.as_json:
            _show_finding(finding)
    if session.as_json:
        output.json({"checks": findings})
    failed = [one for one in findings if one.state == flow.FAILED]
    if failed:
        count = f"{len(failed)} check{'s' if len(failed) > 1 else ''} failed"
        raise ConfigError(f"{count}: {', '.join(one.check for one in failed)}.", hint=failed[0].fix)
    output.hint("tpuctl up v3-8")


def _made(source: Path) -> dict[str, str]:
    """What Terraform made; and where that was read, for 'tpuctl doctor' to compare, unless from a pipe."""
    values = terraform.read(Path("/dev/stdin") if str(source) == "-" else source)
    lasting = source.is_dir() or (source.is_file() and source.parent != Path("/dev"))
    return {**values, "terraform": str(source)} if lasting else values


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    """Ask for what has to be known and was not given, on stderr; a wrong answer is told and asked again."""
    found, _ = gcloud_settings(os.environ)
    answers = dict(given)
    for name, question in QUESTIONS.items():
        if name not in answers:
            suggested = f"{answers['project']}-tpuctl" if name == "bucket" else found.get(name)
            answers[name] = click.prompt(question, default=suggested, value_proc=_answer(name), err=True)
    return answers


def _answer(name: str) -> Callable[[str], str]:
    def checked_answer(value: str) -> str:
        try:
            return checked(name, value)
        except UsageError as error:
            raise click.UsageError(f"{error.message} {error.hint}") from error

    return checked_answer


def _write(path: Path, values: Mapping[str, str]) -> None:
    text = "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())
    try:
        replace_file(path.resolve(), [f"# tpuctl: see 'tpuctl config show'\n{text}".encode()], fsync=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", hint="Go to another folder."
        ) from error


def _quoted(value: str) -> str:
    """A TOML basic string; JSON's quoting is a subset of it."""
    return msgspec.json.encode(value).decode()


def _show_finding(finding: flow.Finding) -> None:
    print(f"{MARKS[finding.state]:<8} {finding.check:<12} {finding.text}")
    if finding.fix:
        print(f"{'':<21} fix: {finding.fix}")
