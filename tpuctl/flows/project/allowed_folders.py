"""Remembers in which folders this user had tpuctl run terraform.

A tpuctl.toml that came with somebody's repository can name a folder whose backend block runs programs,
such as `credential_process` of S3 and `exec` of Kubernetes:
https://developer.hashicorp.com/terraform/language/backend
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tpuctl.atomic_files import PRIVATE, replace_file
from tpuctl.config.files import state_folder
from tpuctl.errors import ConfigError
from tpuctl.local.private_folder import make_missing_folders

FILE_NAME = "terraform-folders"
"""File in the state folder: one absolute path a line."""


def allow(folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Remember a folder; raises ConfigError if the state folder cannot be written."""
    file, path = _file(environ), str(folder.resolve())
    if path in _paths(file):
        return
    try:
        make_missing_folders(file.parent)
        replace_file(file, [f"{line}\n".encode() for line in (*_paths(file), path)], mode=PRIVATE)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}.", hint="Set TPUCTL_STATE to a folder of your own."
        ) from error


def is_allowed(folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `allow` was called for a folder by this user on this machine."""
    return str(folder.resolve()) in _paths(_file(environ))


def _file(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / FILE_NAME


def _paths(file: Path) -> list[str]:
    try:
        return file.read_text().split("\n")[:-1]
    except (OSError, UnicodeDecodeError):
        return []
