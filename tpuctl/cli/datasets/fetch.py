"""data fetch."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.errors import InterruptedByUser, UsageError

if TYPE_CHECKING:
    from tpuctl.data.public.catalogue import PublicDataset
    from tpuctl.flows.datasets.fetch import Outcome

FOLDER = Path("data")


@click.command()
@click.argument("name", required=False)
@click.option("--from", "given", type=click.Path(path_type=Path), help="Folder that has the files already.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Folder to make. [default: data/NAME]")
@click.option("--list", "listing", is_flag=True, help="List what there is; so does no NAME.")
@click.option(
    "--unverified", is_flag=True, help="With --from: take files that are not the published ones, too."
)
@dry_run_option
@with_session
def fetch(
    session: Session,
    name: str | None,
    given: Path | None,
    folder: Path | None,
    listing: bool,
    unverified: bool,
    dry_run: bool,
) -> None:
    """Get a public dataset, in a form that `tpuctl data upload` reads; without NAME, list what there is.

    Its files are checked against known sums. What was cut off goes on where it was; a dataset that is there
    is not fetched again. Mind its licence.

    \\b
    Example:
      tpuctl data fetch
      tpuctl data fetch reuters --from ~/downloads
      tpuctl data fetch mnist
    """
    from tpuctl.data.public.catalogue import public_set  # noqa: PLC0415  NumPy: not for the other commands

    if name is None or listing:
        _list(session)
        return
    if unverified and given is None:
        raise UsageError(
            "--unverified goes with --from.", hint="What is fetched has to be what was published."
        )
    row, folder = public_set(name), folder or FOLDER / name
    if dry_run:
        _show_requests(session, row, folder, given)
        return
    try:
        done = _fetched(name, row, folder, given, unverified=unverified)
    except KeyboardInterrupt:
        raise InterruptedByUser(
            "Interrupted: nothing is in its place yet.",
            hint="Run the same command again: what has come is kept.",
        ) from None
    _show(session, row, folder, done)


def _fetched(name: str, row: PublicDataset, folder: Path, given: Path | None, *, unverified: bool) -> Outcome:
    from tpuctl.flows.datasets import fetch as flow  # noqa: PLC0415

    if given is not None:
        return flow.take(name, row, folder, given, show_count, unverified=unverified)
    from tpuctl.cloud.downloads import Downloads  # noqa: PLC0415  requests: only where it is needed

    downloads = Downloads()
    try:
        return flow.fetch(name, row, folder, downloads, show_count)
    finally:
        downloads.close()


def _list(session: Session) -> None:
    from tpuctl.data.public.catalogue import PUBLIC  # noqa: PLC0415

    if session.as_json:
        output.json({"datasets": [_fields(name, row) for name, row in PUBLIC.items()]})
        return
    rows = [(name, _size(row), row.description, row.licence) for name, row in PUBLIC.items()]
    output.table(("NAME", "SIZE", "WHAT", "LICENCE"), rows)
    output.hint("tpuctl data fetch NAME")


def _show_requests(session: Session, row: PublicDataset, folder: Path, given: Path | None) -> None:
    from tpuctl.flows.datasets.fetch import missing  # noqa: PLC0415

    files = [] if given else missing(row, folder)
    if session.as_json:
        asked = [{"method": "GET", "url": one.urls[0], "bytes": one.size or None} for one in files]
        output.json({"requests": asked})
        return
    for one in files:
        print(f"GET {one.urls[0]} ({output.format_bytes(one.size) if one.size else 'size not known'})")
    if not files:
        output.note(f"Nothing would be sent: {'the files are local' if given else f'{folder} is there'}.")


def _show(session: Session, row: PublicDataset, folder: Path, done: Outcome) -> None:
    made, command = done.fetched, _command(done.fetched.name, folder, row)
    if session.as_json:
        output.json(
            {
                "name": made.name,
                "folder": str(folder),
                "already_there": done.already_there,
                "files": made.files,
                "unverified": made.unverified,
                "licence": row.licence,
                "source": row.source,
                "next": command,
            }
        )
        return
    output.facts(
        {
            "dataset": made.name + (" (was there already)" if done.already_there else ""),
            "what": row.description,
            "where": folder,
            "licence": row.licence,
            "source": row.source,
        }
    )
    for name in made.unverified:
        output.note(f"not the published {name}, as far as its sum tells: taken as it is")
    output.hint(command)


def _command(name: str, folder: Path, row: PublicDataset) -> str:
    """Return the command that uploads it."""
    return f"tpuctl data upload {name} {shlex.quote(str(folder))} {row.options}".rstrip()


def _fields(name: str, row: PublicDataset) -> dict[str, object]:
    return {
        "name": name,
        "what": row.description,
        "files": [
            {"name": one.name, "url": one.urls[0], "bytes": one.size or None, "sha256": one.sha256}
            for one in row.forms[0].files
        ],
        "licence": row.licence,
        "source": row.source,
        "next": _command(name, FOLDER / name, row),
    }


def _size(row: PublicDataset) -> str:
    sizes = [one.size for one in row.forms[0].files]
    return output.format_bytes(sum(sizes)) if all(sizes) else ""
