"""Reads a project's file only if it belongs to the user, as git does since CVE-2022-24765."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from tpuctl.errors import ConfigError

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
