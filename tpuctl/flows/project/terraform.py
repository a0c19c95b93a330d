"""Reads Terraform's outputs, and compares them with the configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tpuctl import accelerators
from tpuctl.config import Config, terraform_output
from tpuctl.errors import ConfigError, DeadlineError, UsageError

TIMEOUT = 120.0
"""Seconds for `terraform output`, which may have to fetch the state from a bucket."""


def read(source: Path) -> dict[str, str]:
    """Return the settings in Terraform's outputs: of a folder where it was applied, or of a JSON file.

    Raises UsageError when there is no such folder or file, ConfigError when it does not have the output.
    """
    if source.is_dir():
        return terraform_output.settings(_outputs(source), str(source))
    try:
        return terraform_output.settings(source.read_bytes(), str(source))
    except OSError as error:
        raise UsageError(
            f"{source} cannot be read: {error.strerror}.",
            hint="Pass the folder where 'terraform apply' ran, or a file with its 'terraform output -json'.",
        ) from error


def differences(config: Config, outputs: dict[str, str]) -> list[str]:
    """Return a sentence for each setting that differs from Terraform's; a zone may differ in its region."""
    return [
        f"{name} is {config.get(name)} ({config.values[name].origin}), Terraform made {value}"
        for name, value in outputs.items()
        if not _same(name, config.get(name), value)
    ]


def _same(name: str, configured: str | None, output: str) -> bool:
    if name == "zone" and configured:
        return accelerators.region(configured) == accelerators.region(output)
    return configured == output


def _outputs(folder: Path) -> bytes:
    program = shutil.which("terraform")
    if program is None:
        raise ConfigError(
            f"terraform is not on the PATH, so the outputs of {folder} cannot be read.",
            hint="Where it is, run 'terraform output -json > outputs.json', and pass that file instead.",
        )
    try:
        process = subprocess.run(
            [program, "output", "-json", "-no-color"],
            cwd=folder,
            env=os.environ | {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(
            f"'terraform output' in {folder} did not answer in {TIMEOUT:.0f} s.", hint="Run it there by hand."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{program} cannot be run in {folder}: {error.strerror}.", hint="Check its permissions."
        ) from error
    if process.returncode:
        message = " ".join(process.stderr.decode(errors="replace").replace("│", " ").split())
        raise ConfigError(
            f"'terraform output' failed in {folder}: {message}",
            hint="Run 'terraform init' there, then try again.",
        )
    return process.stdout
