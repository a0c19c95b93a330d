"""Configuration: layered once, frozen, and able to say where each value came from."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tpuctl.config.gcloud import gcloud_settings
from tpuctl.errors import ConfigError, nearest

FILE_NAME = "tpuctl.toml"


@dataclass(frozen=True)
class Setting:
    """One thing that can be configured."""

    name: str
    help: str
    gcp_default: str | None = None
    sim_default: str | None = None
    real_only: bool = False
    """The files' and gcloud's values name things of a real project, which a simulator does not have."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TPUCTL_{self.name.upper()}"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("target", "gcp or sim"),
        Setting("project", "Google Cloud project id", sim_default="sim-project", real_only=True),
        Setting("zone", "zone of the TPUs", sim_default="europe-west4-a"),
        Setting(
            "bucket",
            "Cloud Storage bucket of datasets and runs",
            sim_default="sim-project-tpuctl",
            real_only=True,
        ),
        Setting("data_bucket", "Cloud Storage bucket of datasets, when it is another one", real_only=True),
        Setting("network", "VPC network of the TPU VMs", "default", "default"),
        Setting("subnetwork", "subnetwork of the TPU VMs", real_only=True),
        Setting(
            "external_ips",
            "whether TPU VMs have external addresses (yes or no)",
            "yes",
            "yes",
            real_only=True,
        ),
        Setting("service_account", "service account of the TPU VMs (email)", real_only=True),
        Setting(
            "terraform",
            "folder or file that 'tpuctl init --from-terraform' read, to compare with",
            real_only=True,
        ),
        Setting("ssh_user", "user on the TPU VMs"),
        Setting("ssh_key", "private key for SSH"),
    )
}
TARGETS = ("gcp", "sim")


@dataclass(frozen=True)
class Value:
    """A configured value and where it came from."""

    value: str | None
    origin: str


@dataclass(frozen=True)
class Config:
    """Every setting's value; read once, at the start of a command."""

    values: Mapping[str, Value]

    def get(self, name: str) -> str | None:
        """Return the value of a setting, or None when nothing sets it."""
        return self.values[name].value

    def require(self, name: str) -> str:
        """Return the value of a setting; raises ConfigError that says how to set it."""
        value = self.get(name)
        if value is None:
            setting = SETTINGS[name]
            raise ConfigError(
                f"No {name} is configured ({setting.help}).",
                hint=f"Run 'tpuctl init', or pass --{name.replace('_', '-')}, or set {setting.variable}.",
                setting=name,
            )
        return value

    def agreed(self, name: str) -> bool:
        """Return whether a setting is yes; raises ConfigError when it is neither yes nor no."""
        value = self.require(name)
        if value not in ("yes", "no"):
            raise ConfigError(f"{name} is '{value}' ({self.values[name].origin}).", hint="It is yes or no.")
        return value == "yes"

    @property
    def target(self) -> str:
        """`gcp` or `sim`."""
        return self.require("target")


@dataclass(frozen=True)
class Layer:
    """One source of values: what it sets, and how to name the origin of one of them."""

    values: Mapping[str, str]
    origin: Callable[[str], str]
    personal: bool = False
    """Typed or exported for this command, so it also holds on the simulator."""


def load(
    flags: Mapping[str, str | None], environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Config:
    """Read all layers: flags, TPUCTL_*, tpuctl.toml (found upward), user file, gcloud, defaults.

    Raises ConfigError for a file that cannot be read, with its path.
    """
    layers = [
        Layer(
            {k: v for k, v in flags.items() if v}, lambda name: f"--{name.replace('_', '-')}", personal=True
        ),
        Layer(_from_environment(environ), lambda name: SETTINGS[name].variable, personal=True),
        *_file_layers(environ, folder or _working_folder()),
    ]
    layers = [_with_data_bucket(one) for one in layers]
    target = _first(layers, "target") or _default_target(layers)
    _check_target(target)
    sim = target.value == "sim"
    values = {"target": target}
    for setting in SETTINGS.values():
        if setting.name != "target":
            usable = [one for one in layers if one.personal or not (sim and setting.real_only)]
            values[setting.name] = _first(usable, setting.name) or _default(setting, sim=sim, environ=environ)
    return Config(values)


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's own configuration file."""
    return _home(environ, "XDG_CONFIG_HOME", ".config") / "tpuctl" / "config.toml"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what tpuctl itself keeps on this machine: simulator, crash reports, key."""
    if environ.get("TPUCTL_STATE"):
        return Path(environ["TPUCTL_STATE"])
    return _home(environ, "XDG_STATE_HOME", ".local/state") / "tpuctl"


def find_file(folder: Path) -> Path | None:
    """Return the nearest tpuctl.toml in `folder` or above."""
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            return place / FILE_NAME
    return None


def read_file(path: Path) -> dict[str, str]:
    """Return the settings in a TOML file; raises ConfigError naming the path and the wrong key."""
    try:
        content: dict[str, str] = msgspec.toml.decode(path.read_bytes())
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", hint="Correct the file.") from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
    for name, value in content.items():
        if name not in SETTINGS:
            close = nearest(name, SETTINGS)
            hint = f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(SETTINGS)}."
            raise ConfigError(f"{path} sets '{name}', which is not a setting.", hint=hint)
        if not isinstance(value, str):
            raise ConfigError(f"{path}: '{name}' has to be a string.", hint=f'Write {name} = "...".')
    return content


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError("The working folder does not exist any more.", hint="Go to another one.") from error


def _file_layers(environ: Mapping[str, str], folder: Path) -> list[Layer]:
    paths = [find_file(folder), user_file(environ)]
    files = [
        Layer({k: v for k, v in read_file(path).items() if v}, _named(str(path)))
        for path in paths
        if path and path.is_file()
    ]
    gcloud, origins = gcloud_settings(environ)
    return [*files, Layer(gcloud, origins.__getitem__)]


def _named(origin: str) -> Callable[[str], str]:
    return lambda _name: origin


def _with_data_bucket(layer: Layer) -> Layer:
    """A place that names a bucket and none for datasets means it for both, whatever places below it say."""
    if "bucket" not in layer.values or "data_bucket" in layer.values:
        return layer
    values = {**layer.values, "data_bucket": layer.values["bucket"]}
    return replace(layer, values=values, origin=lambda name: layer.origin(name.removeprefix("data_")))


def _first(layers: list[Layer], name: str) -> Value | None:
    for layer in layers:
        if name in layer.values:
            return Value(layer.values[name], layer.origin(name))
    return None


def _default_target(layers: list[Layer]) -> Value:
    project = _first(layers, "project")
    if project:
        return Value("gcp", f"default: a project is configured ({project.origin})")
    return Value("sim", "default: no project is configured")


def _check_target(target: Value) -> None:
    if target.value not in TARGETS:
        raise ConfigError(
            f"The target '{target.value}' ({target.origin}) is not one of {' and '.join(TARGETS)}.",
            hint="Use gcp for a real project, sim for the simulator.",
        )


def _default(setting: Setting, *, sim: bool, environ: Mapping[str, str]) -> Value:
    if setting.name == "ssh_user":
        return Value(_login_name(), "default: your user name")
    if setting.name == "ssh_key":
        return _default_key(environ)
    value = setting.sim_default if sim else setting.gcp_default
    origin = "not set" if value is None else ("default of the simulator" if sim else "default")
    return Value(value, origin)


def _login_name() -> str:
    """A user name that Linux accepts: OS accounts elsewhere may hold dots, blanks and capitals."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "tpu"
    return re.sub(r"[^a-z0-9_-]", "_", name.lower())[:32]


def _default_key(environ: Mapping[str, str]) -> Value:
    gcloud = Path(environ.get("HOME", "~")).expanduser() / ".ssh" / "google_compute_engine"
    if gcloud.is_file():
        return Value(str(gcloud), "default: the key gcloud uses")
    return Value(str(state_folder(environ) / "ssh" / "id_ed25519"), "default: made when first needed")


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[one.variable] for name, one in SETTINGS.items() if environ.get(one.variable)}


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    return Path(environ.get(variable) or Path(environ.get("HOME", "~")).expanduser() / default)
