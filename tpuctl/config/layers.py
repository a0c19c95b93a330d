"""Reads the layers of settings once and merges them; each value knows its origin.

- Reads project, zone and account from gcloud's own configuration.
"""

from __future__ import annotations

import configparser
import getpass
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpuctl.catalogue.prices import OwnPrice
from tpuctl.config.files import SettingsFile, home, read_files, state_folder, working_folder
from tpuctl.config.settings import FORMATS, SETTINGS, TARGETS, Setting, Value, normalize
from tpuctl.errors import ConfigError

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


@dataclass(frozen=True)
class Config:
    """Every setting's value; read once, at the start of a command."""

    values: Mapping[str, Value]
    """As they were written; `get` and `require` check their formats."""
    unused: Mapping[str, Value] = field(default_factory=dict)
    """Values of files and of gcloud that the simulator does not use, by setting."""
    files: tuple[str, ...] = ()
    """The files of tpuctl that were read, the strongest first."""
    prices: tuple[OwnPrice, ...] = ()
    """The rows of the tables `[prices]`, those of the strongest file first."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """What the tables `[run]` say, each setting as in the strongest file; job_header.py checks it."""

    def get(self, name: str) -> str | None:
        """Return the value of a setting, or None when nothing sets it.

        Raises UsageError or ConfigError, which name its origin, if its format is wrong.
        """
        value = self.values[name]
        if value.value is None or name not in FORMATS:
            return value.value
        is_one_bucket = name == "data_bucket" and value == self.values["bucket"]
        return normalize("bucket" if is_one_bucket else name, value.value, value.place)

    def require(self, name: str) -> str:
        """Return the value of a setting; raises ConfigError that says how to set it, and as `get` does."""
        value = self.get(name)
        if value is None:
            setting = SETTINGS[name]
            raise ConfigError(
                f"No {name} is configured ({setting.help}).",
                hint=f"Run 'tpuctl init', or pass {setting.flag}, or set {setting.variable}.",
                setting=name,
            )
        return value

    def require_bool(self, name: str) -> bool:
        """Return whether a setting is yes; raises as `require` does."""
        return self.require(name) == "yes"

    @property
    def is_project_chosen(self) -> bool:
        """Whether the project was named for tpuctl or in this shell: gcloud's file may mean other work."""
        return self.target != "gcp" or not self.values["project"].origin.startswith(GCLOUD_FILE)

    @property
    def target(self) -> str:
        """`gcp` or `sim`."""
        return self.require("target")


@dataclass(frozen=True)
class Layer:
    """One source of values: what it sets, and how to name the origin of one of them."""

    values: Mapping[str, str]
    origin: Callable[[str], str]
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each value, if the layer is a file."""
    personal: bool = False
    """Typed or exported for this command, so it also holds on the simulator."""

    @property
    def is_for_simulator(self) -> bool:
        """Whether all its values hold on the simulator; others may name resources of a real project."""
        return self.personal or self.values.get("target") == "sim"


def load(
    flags: Mapping[str, str | None], environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Config:
    """Read all layers: flags, TPUCTL_*, the project's file, user file, gcloud, defaults.

    Raises ConfigError for a file that cannot be read, with its path.
    """
    files = read_files(folder or working_folder(), environ)
    layers = _with_data_buckets(_layers(flags, environ, files))
    target = _first(layers, "target") or _default_target(layers)
    if target.value not in TARGETS:
        raise ConfigError(
            f"The target '{target.value}' ({target.place}) is not one of {' and '.join(TARGETS)}.",
            hint="Use gcp for a real project, sim for the simulator.",
        )
    unused = _unused(layers) if target.value == "sim" else {}
    others = (setting for setting in SETTINGS.values() if setting.name != "target")
    values = {setting.name: _value(setting, layers, target, environ, unused) for setting in others}
    prices = tuple(row for file in files for row in file.prices)
    run = {name: value for file in reversed(files) for name, value in file.run.items()}
    paths = tuple(str(file.path) for file in files)
    return Config({"target": target, **values}, unused, paths, prices, run)


def _value(
    setting: Setting,
    layers: list[Layer],
    target: Value,
    environ: Mapping[str, str],
    unused: Mapping[str, Value],
) -> Value:
    sim = target.value == "sim"
    usable = [layer for layer in layers if layer.is_for_simulator] if sim and setting.real_only else layers
    value = _first(usable, setting.name) or default_value(setting, sim=sim, environ=environ)
    if setting.name not in unused:
        return value
    other = unused[setting.name]
    return replace(
        value, origin=f"{value.origin}; the simulator does not use '{other.value}' ({other.origin})"
    )


def _unused(layers: list[Layer]) -> dict[str, Value]:
    """The values that the simulator does not use though no stronger layer sets another."""
    strongest = {
        setting.name: next((layer for layer in layers if setting.name in layer.values), None)
        for setting in SETTINGS.values()
        if setting.real_only
    }
    return {
        name: Value(layer.values[name], layer.origin(name))
        for name, layer in strongest.items()
        if layer and not layer.is_for_simulator
    }


def _layers(
    flags: Mapping[str, str | None], environ: Mapping[str, str], files: Sequence[SettingsFile]
) -> list[Layer]:
    """All layers, the strongest first."""
    typed = {name: value for name, value in flags.items() if value}
    exported = {
        name: environ[setting.variable] for name, setting in SETTINGS.items() if environ.get(setting.variable)
    }
    gcloud, origins = gcloud_settings(environ)
    return [
        Layer(typed, lambda name: SETTINGS[name].flag, personal=True),
        Layer(exported, lambda name: SETTINGS[name].variable, personal=True),
        *(_file_layer(file) for file in files),
        Layer(gcloud, origins.__getitem__),
    ]


def _file_layer(file: SettingsFile) -> Layer:
    values = {name: value for name, value in file.values.items() if value}
    return Layer(values, lambda _name: str(file.path), file.lines)


def _with_data_buckets(layers: Sequence[Layer]) -> list[Layer]:
    """Let `--bucket` and TPUCTL_BUCKET alike leave the bucket of datasets that TPUCTL_DATA_BUCKET names."""
    is_named = any("data_bucket" in layer.values for layer in layers if layer.personal)
    return [layer if layer.personal and is_named else _with_data_bucket(layer) for layer in layers]


def _with_data_bucket(layer: Layer) -> Layer:
    """A layer that names only `bucket` sets the bucket of datasets, too, over the layers below it."""
    if "bucket" not in layer.values or "data_bucket" in layer.values:
        return layer
    values = {**layer.values, "data_bucket": layer.values["bucket"]}
    lines = {**layer.lines, "data_bucket": layer.lines.get("bucket", 0)}
    return replace(
        layer, values=values, lines=lines, origin=lambda name: layer.origin(name.removeprefix("data_"))
    )


def _first(layers: list[Layer], name: str) -> Value | None:
    for layer in layers:
        if name in layer.values:
            return Value(layer.values[name], layer.origin(name), layer.lines.get(name, 0))
    return None


def _default_target(layers: list[Layer]) -> Value:
    project = _first(layers, "project")
    if project:
        return Value("gcp", f"default: a project is configured ({project.origin})")
    return Value("sim", "default: no project is configured")


# Computes the values of settings that no layer sets.


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
