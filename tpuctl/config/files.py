"""Finds configuration files and folders, and reads tpuctl.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tpuctl.config.settings import SETTINGS
from tpuctl.errors import ConfigError, nearest

FILE_NAME = "tpuctl.toml"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's own configuration file."""
    return _base_folder(environ, "XDG_CONFIG_HOME", ".config") / "tpuctl" / "config.toml"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of tpuctl's own state on this machine: simulator, crash reports, SSH key."""
    if environ.get("TPUCTL_STATE"):
        return Path(environ["TPUCTL_STATE"])
    return _base_folder(environ, "XDG_STATE_HOME", ".local/state") / "tpuctl"


def home(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder."""
    return Path(environ.get("HOME", "~")).expanduser()


def find_file(folder: Path) -> Path | None:
    """Return the nearest tpuctl.toml in `folder` or above."""
    for parent in (folder, *folder.parents):
        if (parent / FILE_NAME).is_file():
            return parent / FILE_NAME
    return None


def read_file(path: Path) -> dict[str, str]:
    """Return the settings in a TOML file; raises ConfigError naming the path and the wrong key."""
    try:
        content: dict[str, object] = msgspec.toml.decode(path.read_bytes())
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", hint="Correct the file.") from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
    return {name: _checked(path, name, value) for name, value in content.items()}


def _checked(path: Path, name: str, value: object) -> str:
    if name not in SETTINGS:
        close = nearest(name, SETTINGS)
        hint = f"Did you mean '{close[0]}'?" if close else f"The settings are: {', '.join(SETTINGS)}."
        raise ConfigError(f"{path} sets '{name}', which is not a setting.", hint=hint)
    if not isinstance(value, str):
        raise ConfigError(f"{path}: '{name}' has to be a string.", hint=f'Write {name} = "...".')
    return value


def _base_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """A folder of the XDG base directory specification."""
    return Path(environ.get(variable) or home(environ) / default)
