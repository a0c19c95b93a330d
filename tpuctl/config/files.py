"""Finds configuration files and folders, and reads tpuctl.toml.

- Reads the text of files that editors and shells of other systems have written.
- Keeps Google's protobuf right in Turkish locales.

  It derives the JSON names of fields by the C library's `toupper`, which leaves `i` alone where its capital
  has a dot: `node_id` becomes `nodeid`, which no REST API knows. Python sets LC_CTYPE at its start.
- Reads TOML that anybody may have written: refused with one error, in a time that grows with its size.
- Reads a project's file only if it belongs to the user, as git does since CVE-2022-24765.
"""

from __future__ import annotations

import codecs
import locale
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tpuctl import accelerators
from tpuctl.atomic_files import SHARED, replace_file
from tpuctl.catalogue.prices import OwnPrice
from tpuctl.config.settings import FORMATS, NUMBERS, SETTINGS, YES_OR_NO
from tpuctl.config.subnetworks import SUBNETWORKS, joined
from tpuctl.errors import ConfigError, TpuctlError, nearest

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def text_of(content: bytes, source: str) -> bytes:
    """Return UTF-8 without its byte order mark; raises ConfigError for UTF-16, which names the `source`."""
    if content.startswith(UTF_16) and len(content) > len(UTF_16[0]):
        raise ConfigError(
            f"{source} is UTF-16, as PowerShell's > writes it; tpuctl reads UTF-8.",
            hint="Save it as UTF-8. In PowerShell: terraform output -json | Out-File -Encoding utf8 FILE",
        )
    return content.removeprefix(codecs.BOM_UTF8)


LANGUAGES = ("tr", "az", "crh", "tt")
"""Those with a dotted capital I."""


def use_plain_letters() -> None:
    """Have the C library treat letters as in English, before protobuf is imported; elsewhere do nothing."""
    name = locale.setlocale(locale.LC_CTYPE)
    if name.partition("_")[0] not in LANGUAGES:
        return
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        locale.setlocale(locale.LC_CTYPE, "C")


MOST_PARTS = 64
"""Parts of a key, `a.b.c`: Python's parser holds each beginning of it."""
_DOTTED = re.compile(rf"""(?:\.[ \t]*+(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){{{MOST_PARTS}}}""")


class TomlError(ValueError):
    """A text is not TOML, or not of the type; the message says where, if that is known."""


def decode(text: str, kind: Any = Any) -> Any:
    """Return the content of a text as a type that msgspec knows; raises TomlError."""
    if _DOTTED.search(text):
        raise TomlError(f"a key has more than {MOST_PARTS} parts")
    try:
        return msgspec.toml.decode(text, type=kind)
    except RecursionError as error:
        raise TomlError("it is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:  # the latter for a number of thousands of digits
        raise TomlError(str(error)) from error


MOST_BYTES = 64 * 1024
"""Most bytes of a configuration file."""
ROOT_UID = 0


def read_own(path: Path, safe_folders: Collection[Path], environ: Mapping[str, str], hint: str) -> bytes:
    """Return the content of a file that this user owns and that no other user can change or replace.

    A file in or below one of `safe_folders` may be anybody's. Raises ConfigError with the reason and `hint`.
    """
    content, status = read(path)
    if any(path.resolve().is_relative_to(folder) for folder in safe_folders):
        return content
    check_own(path, status, environ, hint)
    check_own(path, path.lstat(), environ, hint)  # a link of another user's
    check_folder(path.parent, environ, hint)
    return content


def read(path: Path) -> tuple[bytes, os.stat_result]:
    """Return a file's content and the status of what was read; raises ConfigError for one too large."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # a pipe would wait for a writer
        with open(descriptor, "rb") as stream:
            content, status = stream.read(MOST_BYTES + 1) or b"", os.fstat(descriptor)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(
            f"{path} is larger than {MOST_BYTES // 1024} KiB.",
            hint="Is it the right file? Settings are short.",
        )
    return content, status


def check_own(path: Path, status: os.stat_result, environ: Mapping[str, str], hint: str) -> None:
    """Raise ConfigError unless a file or folder belongs to this user and other users cannot write to it.

    Its group may, as in a team's folder: git trusts groups as well.
    """
    if status.st_uid not in user_ids(environ):
        raise ConfigError(
            f"{path} belongs to {user_name(status.st_uid)}, so tpuctl does not use it.", hint=hint
        )
    if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
        raise ConfigError(
            f"Every user of this machine can write to {path}, so tpuctl does not use it.",
            hint=f"Run 'chmod o-w {path}'. {hint}",
        )


def check_folder(folder: Path, environ: Mapping[str, str], hint: str) -> None:
    """Raise ConfigError if another user can put another file into the place of one in `folder`.

    In a folder with the sticky bit, such as /tmp, only the owner of a file can.
    """
    status = folder.stat()
    if status.st_uid not in user_ids(environ) | {ROOT_UID}:
        raise ConfigError(
            f"{folder} belongs to {user_name(status.st_uid)}, so tpuctl does not use its files.", hint=hint
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"Every user of this machine can write to {folder}, so tpuctl does not use its files.",
            hint=f"Run 'chmod o-w {folder}'. {hint}",
        )


def user_ids(environ: Mapping[str, str]) -> frozenset[int]:
    """Return the ids that are this user: behind sudo also that of the user who called it, as for git."""
    own = os.geteuid()
    caller = environ.get("SUDO_UID", "")
    if own == ROOT_UID and caller.isascii() and caller.isdigit():
        return frozenset({own, int(caller)})
    return frozenset({own})


def user_name(uid: int) -> str:
    """Return the name of a user for a message."""
    import pwd  # noqa: PLC0415  only on the way to an error

    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with the id {uid}"


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
PYTHON_ARCHIVES = "python_archives"
OF_USER = (SAFE_FOLDERS, PYTHON_ARCHIVES)
"""Keys of the user's own file alone: a project's would say whom to trust."""


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
        table: dict[str, object] = decode(text)
    except (UnicodeDecodeError, TomlError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", hint="Correct the file.") from error
    safe_folders = _folders(path, table.pop(SAFE_FOLDERS, [])) if is_users else ()
    prices = read_prices(path, table.pop(PRICES, {}), lambda name: _line(text, name))
    run = table.pop(RUN, {})
    if not isinstance(run, dict):
        raise ConfigError(f"{path}, line {_line(text, RUN)}: 'run' has to be a table.", hint="Write [run].")
    values = {name: _checked(path, text, name, value, is_users=is_users) for name, value in table.items()}
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


def _checked(path: Path, text: str, name: str, value: object, *, is_users: bool) -> str:
    place = f"{path}, line {_line(text, name)}"
    if name in OF_USER and not is_users:
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
    if isinstance(value, dict) and name in (SUBNETWORKS, PYTHON_ARCHIVES):
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
