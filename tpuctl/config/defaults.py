"""Computes the values of settings that no layer sets."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Mapping

from tpuctl.config.files import home, state_folder
from tpuctl.config.gcloud import credentials_account
from tpuctl.config.settings import Setting, Value


def default_value(setting: Setting, *, sim: bool, environ: Mapping[str, str]) -> Value:
    """Return the default of a setting on Google Cloud, or on the simulator with `sim`."""
    if setting.name == "ssh_user":
        return Value(_login_name(), "default: your user name")
    if setting.name == "owner":
        return _owner(environ, sim=sim)
    if setting.name == "ssh_key":
        return _ssh_key(environ)
    value = setting.sim_default if sim else setting.gcp_default
    origin = "not set" if value is None else ("default of the simulator" if sim else "default")
    return Value(value, origin)


def _login_name() -> str:
    """A user name that Linux accepts: accounts elsewhere may hold dots, blanks and capitals."""
    return re.sub(r"[^a-z0-9_-]", "_", _user().lower())[:32]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "tpu"


def _owner(environ: Mapping[str, str], *, sim: bool) -> Value:
    """The account of the application default credentials, else this user of this machine.

    On the simulator always the latter: its shells have other credentials than the user's own.
    """
    account = "" if sim else credentials_account(environ)
    if account:
        return Value(account, "default: the account of the credentials")
    name = re.sub(r"[^A-Za-z0-9._@-]", "_", f"{environ.get('TPUCTL_SSH_USER') or _user()}@{platform.node()}")
    return Value(name, "default: your user name on this machine")


def _ssh_key(environ: Mapping[str, str]) -> Value:
    gcloud = home(environ) / ".ssh" / "google_compute_engine"
    if gcloud.is_file():
        return Value(str(gcloud), "default: the key gcloud uses")
    return Value(str(state_folder(environ) / "ssh" / "id_ed25519"), "default: made when first needed")
