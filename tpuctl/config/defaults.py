"""Computes the values of settings that no layer sets."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping

from tpuctl.config.files import home, state_folder
from tpuctl.config.settings import Setting, Value


def default_value(setting: Setting, *, sim: bool, environ: Mapping[str, str]) -> Value:
    """Return the default of a setting on Google Cloud, or on the simulator with `sim`."""
    if setting.name == "ssh_user":
        return Value(_login_name(), "default: your user name")
    if setting.name == "ssh_key":
        return _ssh_key(environ)
    value = setting.sim_default if sim else setting.gcp_default
    origin = "not set" if value is None else ("default of the simulator" if sim else "default")
    return Value(value, origin)


def _login_name() -> str:
    """A user name that Linux accepts: accounts elsewhere may hold dots, blanks and capitals."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "tpu"
    return re.sub(r"[^a-z0-9_-]", "_", name.lower())[:32]


def _ssh_key(environ: Mapping[str, str]) -> Value:
    gcloud = home(environ) / ".ssh" / "google_compute_engine"
    if gcloud.is_file():
        return Value(str(gcloud), "default: the key gcloud uses")
    return Value(str(state_folder(environ) / "ssh" / "id_ed25519"), "default: made when first needed")
