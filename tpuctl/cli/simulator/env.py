"""The command sim env: prints shell code that points the clients in a shell to the simulator."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from tpuctl import shells
from tpuctl.cli import output, printing
from tpuctl.cli.simulator import client_libraries
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.errors import StateError
from tpuctl.simulator_folder import PROGRAMS

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
    if not unset and client_libraries.lacks_pysocks(os.environ):
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
