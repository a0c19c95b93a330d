"""Reads Terraform's outputs, and compares them with the configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tpuctl import accelerators
from tpuctl.config import Config, terraform_output
from tpuctl.config.files import check_own, read_file
from tpuctl.config.settings import normalize
from tpuctl.config.subnetworks import SUBNETWORKS
from tpuctl.errors import ConfigError, DeadlineError, UsageError

TIMEOUT = 120.0
"""Seconds for `terraform output`, which may have to fetch the state from a bucket."""
MOST_BYTES = 16 * 1024 * 1024
"""Most bytes of a file of outputs."""
MADE = (
    "project", "zone", "bucket", "data_bucket", "network", "subnetwork", "subnetworks", "service_account",
    "external_ips",
)  # fmt: skip
"""The settings that terraform/ decides."""
KEPT_VARIABLES = ("TF_CLI_CONFIG_FILE", "TF_DATA_DIR", "TF_WORKSPACE", "TF_HTTP_", "TF_TOKEN_", "TF_VAR_")
"""How the names begin of Terraform's variables that say where the state is and who may read it.

No other is passed on: TF_CLI_ARGS changes the command, TF_LOG its output, TF_REATTACH_PROVIDERS its plug-ins.
"""


class UnavailableError(ConfigError):
    """Terraform, its folder or its state is not on this machine, or not within this user's reach."""


def read(source: Path) -> dict[str, str]:
    """Return the settings in Terraform's outputs: of a folder where it was applied, or of a JSON file.

    Raises UsageError when there is no such folder or file, ConfigError when it does not have the output.
    """
    if source.is_dir():
        outputs = _outputs(source)
        if not terraform_output.is_applied(outputs):
            raise UnavailableError(
                f"{source} has no output '{terraform_output.OUTPUT}'.", hint=terraform_output.APPLY_FIRST
            )
        return terraform_output.settings(outputs, str(source))
    try:
        return terraform_output.settings(_content(source), str(source))
    except OSError as error:
        raise UsageError(
            f"{source} cannot be read: {error.strerror}.",
            hint="Pass the folder where 'terraform apply' ran, or a file with its 'terraform output -json'.",
        ) from error


def differences(config: Config, outputs: dict[str, str]) -> list[str]:
    """Return a sentence for each setting that differs from Terraform's.

    A zone may differ in its region; `iap` is how hosts are reached, and nothing that Terraform makes.
    """
    return [
        f"{name} is {config.get(name)} ({config.values[name].origin}), Terraform made {value}"
        for name, value in outputs.items()
        if name != "iap" and not _same(name, config.get(name), value)
    ]


def overrides(config: Config, path: Path) -> list[str]:
    """Return a sentence for each setting of Terraform's that the project's file has otherwise.

    The file is what a team commits: its values are those of the outputs when `tpuctl init` wrote it.
    """
    committed = read_file(path).values if path.is_file() else {}
    return [
        f"{name} is {config.get(name)} ({config.values[name].origin}), {path.name} has {value}"
        for name, text in committed.items()
        if name in MADE and not _same(name, config.get(name), value := normalize(name, text))
    ]


def _same(name: str, configured: str | None, output: str) -> bool:
    if name == "zone" and configured:
        return accelerators.region(configured) == accelerators.region(output)
    if name == SUBNETWORKS and configured is None:
        return True  # written by an earlier version: the first region's is in `subnetwork`
    return configured == output


def _content(source: Path) -> bytes:
    with source.open("rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(
            f"{source} is larger than {MOST_BYTES // 1024**2} MiB.",
            hint="Pass what 'terraform output -json' prints.",
        )
    return content


def _outputs(folder: Path) -> bytes:
    _check_own(folder)
    program = shutil.which("terraform", path=_absolute_path())
    if program is None:
        raise UnavailableError(
            f"terraform is not on the PATH, so the outputs of {folder} cannot be read.",
            hint="Where it is, run 'terraform output -json > outputs.json', and pass that file instead.",
        )
    try:
        process = subprocess.run(
            [program, "output", "-json", "-no-color"],
            cwd=folder,
            env=_environment(),
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
        raise UnavailableError(
            f"'terraform output' failed in {folder}: {message}",
            hint="Run 'terraform init' there, then try again.",
        )
    return process.stdout


def _check_own(folder: Path) -> None:
    """Raise ConfigError if another user can write what terraform would read in a folder."""
    hint = "Run 'terraform output -json > outputs.json' there, look at it, and pass that file instead."
    for place in (folder, folder / ".terraform"):
        if place.exists():
            check_own(place, place.stat(), os.environ, hint)


def _absolute_path() -> str:
    """PATH without entries such as `.`: they would run the folder's own program of the name terraform."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))


def _environment() -> dict[str, str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TF_") or name.startswith(KEPT_VARIABLES)
    }
    return variables | {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
