"""Prints the text of `tpuctl` without a command."""

from __future__ import annotations

from tpuctl import __version__
from tpuctl.config import Config, load


def welcome() -> None:
    """Print where commands would run, and the commands to start with."""
    print(f"tpuctl {__version__}: train on Google Cloud TPUs from a laptop.\n")
    print(f"{_target(load({}))}\n")
    print("  tpuctl up v3-8     create a TPU; each command names the next one")
    print("  tpuctl init        configure a Google Cloud project")
    print("  tpuctl doctor      check packages, settings, credentials and access")
    print("  tpuctl --help      all commands")


def _target(config: Config) -> str:
    if config.target == "gcp":
        return f"Commands run on Google Cloud, project {config.get('project')} (see 'tpuctl config show')."
    reason = config.values["target"].origin.removeprefix("default: ")
    return f"Commands run on the simulator ({reason}): local, at no cost."
