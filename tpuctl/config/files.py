"""Finds configuration files and folders, and reads tpuctl.toml."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tpuctl import accelerators
from tpuctl.atomic_files import SHARED, replace_file
from tpuctl.catalogue.prices import OwnPrice
from tpuctl.config import toml
from tpuctl.config.encodings import text_of
from tpuctl.config.formats import FORMATS, NUMBERS, YES_OR_NO
from tpuctl.config.settings import SETTINGS
from tpuctl.config.subnetworks import SUBNETWORKS, joined
from tpuctl.config.trusted_files import read, read_own
from tpuctl.errors import ConfigError, TpuctlError, nearest

PRICES = "prices"
RUN = "run"
"""Name of the table with settings of runs, as those of a job's header."""
CURRENCY = "currency"
TERMS = ("on_demand", "spot")
DEFAULT_CURRENCY = "USD"
LARGEST = 10_000_000
PLACE = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+(-(ai[0-9]+)?[a-z])?")
"""A region or a zone."""
Line = Callable[[str], int]
FILE_NAME = "tpuctl.toml"
VARIABLE = "TPUCTL_CONFIG"
"""Environment variable that names the file to read in the place of the nearest tpuctl.toml."""
SAFE_FOLDERS = "safe_folders"
"""Key of the user's own file: folders whose tpuctl.toml may belong to other users."""


@dataclass(frozen=True)
class SettingsFile:
    """The settings in one file."""

    path: Path
    values: Mapping[str, str]
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each setting, counted from 1."""
    safe_folders: tuple[Path, ...] = ()
    prices: tuple[OwnPrice, ...] = ()
    """The rows of its table `[prices]`."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Its table `[run]`, which is not checked yet."""


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's own configuration file."""
    return _base_folder(environ, "XDG_CONFIG_HOME", ".config") / "tpuctl" / "config.toml"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of tpuctl's own state on this machine: simulator, crash reports, SSH key.

    It is absolute: programs with another working folder get its files by name.
    """
    own = environ.get("TPUCTL_STATE")
    folder = Path(own) if own else _base_folder(environ, "XDG_STATE_HOME", ".local/state") / "tpuctl"
    return folder if folder.is_absolute() else working_folder() / folder


def working_folder() -> Path:
    """Return the working folder; raises ConfigError for one that was deleted."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError("The working folder does not exist any more.", hint="Go to another one.") from error


def home(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder."""
    return Path(environ.get("HOME", "~")).expanduser()


def set_project(path: Path, project: str) -> None:
    """Write a project into a file of settings, before what it has; raises ConfigError."""
    try:
        is_there = path.exists()
        content = path.read_bytes() if is_there else b"# tpuctl: see 'tpuctl config show'\n"
        mode = stat.S_IMODE(path.stat().st_mode) if is_there else SHARED
        replace_file(path.resolve(), [f'project = "{project}"\n'.encode(), content], mode=mode, fsync=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def find_file(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the nearest tpuctl.toml in `folder` or above, up to the home or the top of a file system."""
    top = home(environ).resolve()
    for parent in (folder, *folder.parents):
        if os.path.isfile(parent / FILE_NAME):
            return parent / FILE_NAME
        if parent == top or os.path.ismount(parent):
            return None
    return None


def read_files(folder: Path, environ: Mapping[str, str]) -> list[SettingsFile]:
    """Return the project's file and the user's own, those of them that exist.

    Raises ConfigError for a file that cannot be read or is malformed, and for one that other users control.
    """
    path = user_file(environ)
    own = read_file(path, is_users=True) if path.is_file() else None
    named = environ.get(VARIABLE)
    nearest_file = folder / Path(named).expanduser() if named else find_file(folder, environ)
    if nearest_file is None:
        return [own] if own else []
    content, _ = read(nearest_file) if named else (_read_found(nearest_file, own, environ), None)
    return [parse(nearest_file, content), *([own] if own else [])]


def read_file(path: Path, *, is_users: bool = False) -> SettingsFile:
    """Return the settings in a TOML file; raises ConfigError naming the path and the wrong key."""
    content, _ = read(path)
    return parse(path, content, is_users=is_users)


def parse(path: Path, content: bytes, *, is_users: bool = False) -> SettingsFile:
    """Return the settings in the content of a file; raises ConfigError naming its path and the wrong key."""
    content = text_of(content, str(path))
    try:
        text = content.decode()
        table: dict[str, object] = toml.decode(text)
    except (UnicodeDecodeError, toml.TomlError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", hint="Correct the file.") from error
    safe_folders = _folders(path, table.pop(SAFE_FOLDERS, [])) if is_users else ()
    prices = read_prices(path, table.pop(PRICES, {}), lambda name: _line(text, name))
    run = table.pop(RUN, {})
    if not isinstance(run, dict):
        raise ConfigError(f"{path}, line {_line(text, RUN)}: 'run' has to be a table.", hint="Write [run].")
    values = {name: _checked(path, text, name, value) for name, value in table.items()}
    lines = {name: _line(text, name) for name in values}
    return SettingsFile(path, values, lines, safe_folders, prices, run)


def _read_found(path: Path, own: SettingsFile | None, environ: Mapping[str, str]) -> bytes:
    hint = (
        f'If you trust it, set {VARIABLE}={path}, or write {SAFE_FOLDERS} = ["{path.parent}"] in '
        f"{user_file(environ)}. {VARIABLE}=/dev/null reads no file."
    )
    return read_own(path, own.safe_folders if own else (), environ, hint)


def _folders(path: Path, value: object) -> tuple[Path, ...]:
    if not isinstance(value, list) or not all(isinstance(folder, str) for folder in value):
        raise ConfigError(
            f"{path}: '{SAFE_FOLDERS}' has to be a list of folders.",
            hint=f'Write {SAFE_FOLDERS} = ["/srv/team"].',
        )
    folders = tuple(Path(folder).expanduser() for folder in value)
    relative = [str(folder) for folder in folders if not folder.is_absolute()]
    if relative:
        raise ConfigError(
            f"{path}: '{SAFE_FOLDERS}' names {relative[0]}, which does not begin with / or ~.",
            hint="Write the whole path.",
        )
    return tuple(folder.resolve() for folder in folders)


def _checked(path: Path, text: str, name: str, value: object) -> str:
    place = f"{path}, line {_line(text, name)}"
    if name == SAFE_FOLDERS:
        raise ConfigError(
            f"{place} sets '{name}', which only your own file can.", hint=f"It is {user_file()}."
        )
    if name not in SETTINGS:
        close = nearest(name, SETTINGS)
        hint = f"Did you mean '{close[0]}'?" if close else f"The settings are: {', '.join(SETTINGS)}."
        raise ConfigError(f"{place} sets '{name}', which is not a setting.", hint=hint)
    if isinstance(value, bool) and FORMATS.get(name) is YES_OR_NO:
        return "yes" if value else "no"
    if isinstance(value, int) and not isinstance(value, bool) and name in NUMBERS and abs(value) < 1 << 63:
        return str(value)
    if isinstance(value, dict) and name in (SUBNETWORKS, "python_archives"):
        return joined({key: str(one) for key, one in value.items()})
    if not isinstance(value, str):
        raise ConfigError(f"{place}: '{name}' has to be a string.", hint=f'Write {name} = "...".')
    return value


def _line(text: str, name: str) -> int:
    """The line on which a key of the top level is set; the first one for a key in an unusual form."""
    key = re.escape(name)
    match = re.search(rf"""(?m)^[ \t]*(?:{key}|"{key}"|'{key}')[ \t]*[=.]|^[ \t]*\[+[ \t]*{key}\b""", text)
    return 1 + text.count("\n", 0, match.start()) if match else 1


def _base_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """A folder of the XDG base directory specification."""
    return Path(environ.get(variable) or home(environ) / default)


# Reads the table `[prices]` of a configuration file: what a project pays, where that is known better.
#
# [prices]
# currency = "EUR"                               # of every row; USD without it
# v3-8 = 7.5                                     # a slice of this type for an hour, on demand
# v5e = { on_demand = 1.1, spot = 0.4 }          # a chip of this generation for an hour
# "v5e@europe-west4" = { on_demand = 1.3 }       # in one region or zone


def read_prices(path: Path, table: object, line_of: Line) -> tuple[OwnPrice, ...]:
    """Return the rows of the table; raises ConfigError that names the file, the line and the key."""
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path}, line {line_of(PRICES)}: 'prices' has to be a table.", hint="Write [prices]."
        )
    rows = {name: value for name, value in table.items() if name != CURRENCY}
    currency = _currency(path, table.get(CURRENCY, DEFAULT_CURRENCY), line_of)
    return tuple(_row(name, value, currency, f"{path}, line {line_of(name)}") for name, value in rows.items())


def _currency(path: Path, value: object, line_of: Line) -> str:
    if isinstance(value, str) and re.fullmatch("[A-Z]{3}", value):
        return value
    raise ConfigError(
        f"{path}, line {line_of(CURRENCY)}: the currency of [prices] has to be a code of three capitals.",
        hint='Write currency = "EUR".',
    )


def _row(key: str, value: object, currency: str, origin: str) -> OwnPrice:
    name, at, place = key.partition("@")
    if at and not PLACE.fullmatch(place):
        raise ConfigError(
            f"{origin}: '{place}' is not a region or zone.", hint='Write "v5e@europe-west4" = ...'
        )
    terms = value if isinstance(value, dict) else {"on_demand": value}
    others = [term for term in terms if term not in TERMS]
    if others or not terms:
        raise ConfigError(
            f"{origin}: the price of {key} has no term '{', '.join(others)}'.",
            hint=f"Write {key} = {{ on_demand = 1.5, spot = 0.5 }}.",
        )
    amounts = {term: _amount(key, amount, origin) for term, amount in terms.items()}
    return OwnPrice(
        _known(name, origin), place, amounts.get("on_demand"), amounts.get("spot"), currency, origin
    )


def _amount(key: str, value: object, origin: str) -> Decimal:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return Decimal(str(value))
    raise ConfigError(
        f"{origin}: the price of {key} has to be a number, 0 or more.", hint=f"Write {key} = 1.5."
    )


def _known(name: str, origin: str) -> str:
    """Return the generation or accelerator type that a key names."""
    generations = {kind.generation for kind in accelerators.catalogue().values()}
    if name in generations:
        return name
    try:
        return accelerators.known(name).type
    except TpuctlError as error:
        close = nearest(name, generations)
        hint = f"Did you mean '{close[0]}'?" if close and "-" not in name else error.hint
        raise ConfigError(
            f"{origin}: there is no accelerator type or generation '{name}'.", hint=hint
        ) from error
