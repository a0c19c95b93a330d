"""Reads project, zone and account from gcloud's own configuration."""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from pathlib import Path

GCLOUD = {
    "project": (("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), ("core", "project")),
    "owner": (("CLOUDSDK_CORE_ACCOUNT",), ("core", "account")),
    "zone": (("CLOUDSDK_COMPUTE_ZONE",), ("compute", "zone")),
}
"""Setting -> (environment variables, section and key in gcloud's configuration)."""
GCLOUD_FILE = "gcloud ("
"""How the origin begins of a value that gcloud's own file sets."""


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
        candidates.append((properties.get(section, key, fallback=None), f"{GCLOUD_FILE}{path})"))
        for value, origin in candidates:
            if value and name not in values:
                values[name], origins[name] = value, origin
    return values, origins


def credentials_account(environ: Mapping[str, str]) -> str:
    """Return the account of the application default credentials; empty where their file names none.

    A service account's key has `client_email`, a user's credentials `account` (gcloud 436 and later), an
    impersonation the URL of the account (google-auth, `load_credentials_from_file`).
    """
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    file = Path(named) if named else _gcloud_home(environ) / "application_default_credentials.json"
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(content, dict):
        return ""
    url = str(content.get("service_account_impersonation_url", ""))
    impersonated = url.rpartition("/serviceAccounts/")[2].partition(":")[0]
    candidates = (impersonated, content.get("client_email"), content.get("account"))
    return next((text for text in candidates if isinstance(text, str) and "@" in text), "")


def _gcloud_home(environ: Mapping[str, str]) -> Path:
    return Path(
        environ.get("CLOUDSDK_CONFIG") or Path(environ.get("HOME", "~")).expanduser() / ".config/gcloud"
    )


def _gcloud_file(environ: Mapping[str, str]) -> Path:
    """gcloud's active configuration; layout: `gcloud topic configurations`."""
    home = _gcloud_home(environ)
    try:
        active = (home / "active_config").read_text().strip()
    except (OSError, UnicodeDecodeError):
        active = "default"
    name = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or active or "default"
    return home / "configurations" / f"config_{name}"
