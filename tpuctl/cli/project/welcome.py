"""Prints the text of `tpuctl` without a command."""

from __future__ import annotations

from tpuctl import __version__
from tpuctl.cli import printing
from tpuctl.config import Config, load


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
