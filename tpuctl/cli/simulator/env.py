"""sim env: what leads the clients in a shell to the simulator."""

from __future__ import annotations

import os

import click

from tpuctl.cli import output
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator import process as embedded
from tpuctl.errors import StateError
from tpuctl.shells import SHELLS, entering, leaving, own_shell


@click.command()
@click.option("--shell", type=click.Choice(sorted(SHELLS)), help="Whose words to use; by default $SHELL's.")
@click.option("--unset", is_flag=True, help="Put back what was there before.")
@click.option("--json", "as_json", is_flag=True, help="Show names and values as JSON.")
def env(shell: str | None, unset: bool, as_json: bool) -> None:
    """Print what leads a shell's clients to the simulator, and start it if it does not run.

    Clients are gcloud, gsutil, gcsfs, google-cloud-*, tensorstore, TensorFlow, and tpuctl itself.

    \b
    Example:
      tpuctl sim env --json
      tpuctl sim env --shell fish | source
      eval "$(tpuctl sim env --unset)"
      eval "$(tpuctl sim env)"
    """
    kind = SHELLS[shell or own_shell(os.environ)]
    if unset:
        changes = leaving(os.environ)
        if not changes:
            raise StateError("This shell was not led to the simulator.", hint='eval "$(tpuctl sim env)"')
    else:
        served = embedded.ensure(simulator_folder())
        wanted = {**served.environment, "TPUCTL_TARGET": "sim"}
        changes = dict(wanted) if as_json else dict(entering(wanted, os.environ))
    if as_json:
        output.json({"environment": changes})
        return
    for name, value in changes.items():
        click.echo(kind.assignment(name, value))
    command = f"tpuctl sim env{f' --shell {shell}' if shell else ''}{' --unset' if unset else ''}"
    click.echo(f"# To have this shell do so: {kind.apply.format(command=command)}")
