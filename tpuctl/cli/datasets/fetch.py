"""The command data fetch.

- The command data pull.
"""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.progress import resumable, show_count, show_transfer
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import LOCAL_PATH, OUTPUT_PATH
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.shells import quoted_path

if TYPE_CHECKING:
    from tpuctl.data.public import PublicDataset
    from tpuctl.flows.datasets.fetch import FetchResult


FOLDER = Path("data")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--from",
    "local",
    type=LOCAL_PATH,
    help="Use files from this folder instead of downloading.",
)
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder to create. [default: data/NAME]")
@click.option("--list", "listing", is_flag=True, help="List the available datasets, as without NAME.")
@click.option("--unverified", is_flag=True, help="With --from: skip the checksum check.")
@dry_run_option
@with_session
def fetch(
    session: Session,
    name: str | None,
    local: Path | None,
    folder: Path | None,
    listing: bool,
    unverified: bool,
    dry_run: bool,
) -> None:
    """Download a public dataset and unpack it for `tpuctl data upload`.

    Without NAME, list the available datasets. Files are verified by their published checksums. An interrupted
    download resumes. A dataset that was already downloaded is kept. Check its licence.

    \b
    Example:
      tpuctl data fetch
      tpuctl data fetch reuters --from ~/downloads
      tpuctl data fetch mnist
    """
    from tpuctl.data.public import public_set  # NumPy: not for the other commands

    if name is None or listing:
        _list(session)
        return
    _check(local, unverified=unverified)
    dataset, folder = public_set(name), folder or FOLDER / name
    if dry_run:
        _show_requests(session, dataset, folder, local)
    else:
        _show(session, dataset, folder, _fetched(name, dataset, folder, local, unverified=unverified))


def _check(local: Path | None, *, unverified: bool) -> None:
    if unverified and local is None:
        raise UsageError(
            "--unverified needs --from.", hint="The checksum of a downloaded file is always checked."
        )


def _fetched(
    name: str, dataset: PublicDataset, folder: Path, local: Path | None, *, unverified: bool
) -> FetchResult:
    from tpuctl.flows.datasets import fetch as flow

    with resumable("Interrupted: the dataset is not complete yet.", "the part already downloaded is kept"):
        if local is not None:
            return flow.take(name, dataset, folder, local, show_count, unverified=unverified)
        from tpuctl.cloud.downloads import Downloads  # requests: only where it is needed

        with closing(Downloads()) as downloads:
            return flow.fetch(name, dataset, folder, downloads, show_count)


def _list(session: Session) -> None:
    from tpuctl.data.public import PUBLIC

    if session.as_json:
        output.json({"datasets": [_fields(name, dataset) for name, dataset in PUBLIC.items()]})
        return
    rows = [(name, _size(dataset), dataset.description, dataset.licence) for name, dataset in PUBLIC.items()]
    output.table(("NAME", "SIZE", "WHAT", "LICENCE"), rows)
    output.hint("tpuctl data fetch NAME")


def _show_requests(session: Session, dataset: PublicDataset, folder: Path, local: Path | None) -> None:
    from tpuctl.flows.datasets.fetch import missing

    files = [] if local else missing(dataset, folder)
    if session.as_json:
        requests = [{"method": "GET", "url": file.urls[0], "bytes": file.size or None} for file in files]
        output.json({"requests": requests})
        return
    for file in files:
        size = output.format_bytes(file.size) if file.size else "size unknown"
        printing.write(f"GET {file.urls[0]} ({size})")
    if not files:
        output.note(f"Nothing would be sent: {'the files are local' if local else f'{folder} exists'}.")


def _show(session: Session, dataset: PublicDataset, folder: Path, result: FetchResult) -> None:
    fetched = result.fetched
    command = _command(fetched.name, folder, dataset)
    if session.as_json:
        output.json(
            {
                "name": fetched.name,
                "folder": str(folder),
                "already_there": result.already_there,
                "files": fetched.files,
                "unverified": fetched.unverified,
                "licence": dataset.licence,
                "source": dataset.source,
                "next": command,
            }
        )
        return
    output.facts(
        {
            "dataset": fetched.name + (" (was there already)" if result.already_there else ""),
            "what": dataset.description,
            "where": folder,
            "licence": dataset.licence,
            "source": dataset.source,
        }
    )
    for name in fetched.unverified:
        output.note(f"Warning: {name} has another checksum than the published file.")
    output.hint(command)


def _command(name: str, folder: Path, dataset: PublicDataset) -> str:
    """Return the command that uploads it."""
    return f"tpuctl data upload {name} {quoted_path(str(folder))} {dataset.options}".rstrip()


def _fields(name: str, dataset: PublicDataset) -> dict[str, object]:
    return {
        "name": name,
        "what": dataset.description,
        "files": [
            {"name": file.name, "url": file.urls[0], "bytes": file.size or None, "sha256": file.sha256}
            for file in dataset.forms[0].files
        ],
        "licence": dataset.licence,
        "source": dataset.source,
        "next": _command(name, FOLDER / name, dataset),
    }


def _size(dataset: PublicDataset) -> str:
    sizes = [file.size for file in dataset.forms[0].files]
    return output.format_bytes(sum(sizes)) if all(sizes) else ""


@click.command()
@ref_argument
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder to write to. [default: the dataset's name]")
@with_session
def pull(session: Session, ref: DatasetRef, folder: Path | None) -> None:
    """Download a dataset, and verify each file by the manifest.

    The folder can be read by tfds.builder_from_directory. What is here already is not fetched again.

    \b
    Example:
      tpuctl data pull digits --to ./digits-records
    """
    manifest = steps.manifest(session, ref)
    place = folder or Path(ref.name)
    with (
        resumable(f"Interrupted: {place} has not all of dataset {manifest.ref}.", "what has arrived is kept"),
        show_transfer() as (report, progress),
    ):
        copy = steps.pull(session, manifest, place, report, progress)
    if session.as_json:
        fields = {"files": copy.files, "bytes": copy.bytes, "kept": copy.kept}
        output.json({"dataset": str(manifest.ref), "folder": str(copy.folder), **fields})
        return
    unchanged = f", {copy.kept} of them unchanged" if copy.kept else ""
    files = f"{copy.files} ({output.format_bytes(copy.bytes)}), verified{unchanged}"
    output.facts({"dataset": str(manifest.ref), "files": files, "where": copy.folder})
    read = f"tfds.builder_from_directory({str(copy.folder)!r})"
    output.hint(shlex.join(["python", "-c", f"import tensorflow_datasets as tfds; print({read}.info)"]))
