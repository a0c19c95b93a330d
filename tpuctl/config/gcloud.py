"""Reads project and zone from gcloud's own configuration."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

GCLOUD = {
    "project": (("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), ("core", "project")),
    "zone": (("CLOUDSDK_COMPUTE_ZONE",), ("compute", "zone")),
}
"""Setting -> (environment variables, section and key in gcloud's configuration)."""


def gcloud_settings(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what gcloud and its environment variables set, and the origin of each value."""
    path = _gcloud_file(environ)
    properties = configparser.ConfigParser(interpolation=None)
    try:
        properties.read(path)
    except (configparser.Error, UnicodeDecodeError):
        properties = configparser.ConfigParser()  # gcloud itself complains about its own file
    values, origins = {}, {}
    for name, (variables, (section, key)) in GCLOUD.items():
        candidates = [(environ.get(variable), variable) for variable in variables]
        candidates.append((properties.get(section, key, fallback=None), f"gcloud ({path})"))
        for value, origin in candidates:
            if value and name not in values:
                values[name], origins[name] = value, origin
    return values, origins


def _gcloud_file(environ: Mapping[str, str]) -> Path:
    """gcloud's active configuration; layout: `gcloud topic configurations`."""
    home = Path(
        environ.get("CLOUDSDK_CONFIG") or Path(environ.get("HOME", "~")).expanduser() / ".config/gcloud"
    )
    try:
        active = (home / "active_config").read_text().strip()
    except (OSError, UnicodeDecodeError):
        active = "default"
    name = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or active or "default"
    return home / "configurations" / f"config_{name}"
