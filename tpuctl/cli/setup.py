"""init, config, doctor, and the first contact."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tpuctl import __version__
from tpuctl.cli import show
from tpuctl.cli.session import Session, with_session
from tpuctl.config import FILE_NAME, SETTINGS, load
from tpuctl.errors import ConfigError, ConflictError
from tpuctl.flows import doctor as flow

MARKS = {flow.OK: "ok", flow.FAILED: "FAILED", flow.SKIPPED: "skipped"}


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
@click.option("--project", prompt="Google Cloud project", help="Google Cloud project id.")
@click.option("--zone", prompt="Zone of the TPUs", help="Zone of the TPUs, such as europe-west4-a.")
@click.option("--bucket", prompt="Bucket for datasets and runs", help="Bucket, in the zone's region.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(project: str, zone: str, bucket: str, force: bool) -> None:
    """Write tpuctl.toml for a Google Cloud project.

    \b
    Example:
      tpuctl init --project my-project --zone europe-west4-a --bucket my-bucket
    """
    path = Path(FILE_NAME)
    if path.exists() and not force:
        raise ConflictError(f"{path.resolve()} exists already.", hint="Edit it, or replace it with --force.")
    values = {"project": project, "zone": zone, "bucket": bucket.removeprefix("gs://").rstrip("/")}
    _write(path, values)
    show.note(f"Wrote {path.resolve()}; commands below this folder use project {project} from now on.")
    show.hint("tpuctl doctor")


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
        show.json(
            {"settings": {name: {"value": one.value, "origin": one.origin} for name, one in values.items()}}
        )
        return
    rows = [(name, values[name].value or "-", values[name].origin) for name in SETTINGS]
    show.table(("SETTING", "VALUE", "ORIGIN"), rows)


@click.command()
@with_session
def doctor(session: Session) -> None:
    """Check packages, credentials, project, API, zone, bucket and SSH key, in this order.

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
        show.json({"checks": findings})
    failed = [one for one in findings if one.state == flow.FAILED]
    if failed:
        count = f"{len(failed)} check{'s' if len(failed) > 1 else ''} failed"
        raise ConfigError(f"{count}: {', '.join(one.check for one in failed)}.", hint=failed[0].fix)
    show.hint("tpuctl up v3-8")


def _write(path: Path, values: dict[str, str]) -> None:
    text = "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())
    try:
        path.write_text(f"# tpuctl: see 'tpuctl config show'\n{text}")
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
