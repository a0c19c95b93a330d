"""The command python."""

from __future__ import annotations

import click

from tpuctl.bucket_layout import gs
from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.config.files import user_file
from tpuctl.flows.project import pythons


@click.command()
@click.argument("source", metavar="VERSION|FILE")
@dry_run_option
@with_session
def python(session: Session, source: str, dry_run: bool) -> None:
    """Put a Python into the bucket, for hosts that cannot reach GitHub.

    A VERSION such as 3.12 is got by uv; a FILE is an archive of python-build-standalone. Scripts that ask for
    it (requires-python, or python = "3.12" in [tool.tpuctl]) run by it once your configuration has its hash,
    which this command shows. Hosts check the hash.

    \b
    Example:
      tpuctl python 3.12
    """
    with pythons.archive(source) as archive:
        bucket = session.cloud.bucket
        if dry_run:
            rehearsal = bucket.dry_run()
            pythons.upload(bucket, archive, rehearsal)
            output.requests(rehearsal.requests, as_json=session.as_json)
            return
        is_new = pythons.upload(bucket, archive)
    place = gs(bucket.name, archive.object)
    if session.as_json:
        output.json({"python": archive.version, "sha256": archive.sha256, "object": place, "is_new": is_new})
        return
    printing.write(archive.setting)
    output.note(f"Python {archive.version} {'is now' if is_new else 'already was'} in {place}.")
    output.note(f"Write the line above into {user_file()}: hosts run no other archive.")
