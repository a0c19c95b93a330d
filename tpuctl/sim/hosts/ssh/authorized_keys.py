"""Reads the SSH keys that a host accepts from the metadata of its node and its project."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

KEYS = "ssh-keys"
OLD_KEYS = "sshKeys"
"""The former name; on a node it also disables the project's keys, as gcloud's ssh_utils.py says."""
BLOCK = "block-project-ssh-keys"

OS_LOGIN = "enable-oslogin"
TRUE = ("1", "t", "true")
"""As Google's guest agent reads a flag: Go's ParseBool, in any case."""

KeySet = frozenset[tuple[str, bytes]]


class AuthorizedKeys:
    """The keys in force: those at boot, then those of each change, `delay` seconds later.

    A real host's guest agent needs such a time to notice a change.
    """

    def __init__(self, text: str, delay: float, clock: Callable[[], float]) -> None:
        self._delay = delay
        self._clock = clock
        self._text = text
        self._changes: list[tuple[float, KeySet]] = [(clock(), parse_keys(text))]

    def change(self, text: str) -> None:
        """Have `text`, the new lines of `ssh-keys`, in force after the delay."""
        if text != self._text:
            self._text = text
            self._changes.append((self._clock() + self._delay, parse_keys(text)))

    def allows(self, user: str, public_key: bytes) -> bool:
        """Return whether `user` may log in now with this key (its blob in SSH's wire format)."""
        now = self._clock()
        while len(self._changes) > 1 and self._changes[1][0] <= now:
            del self._changes[0]
        return (user, public_key) in self._changes[0][1]


def accepted_keys(node: Mapping[str, str], project: Mapping[str, str]) -> str:
    """Return the lines of `ssh-keys` that apply to a host, by the metadata of its node and its project.

    None do where OS Login is on; keys in profiles of OS Login are not simulated.
    """
    if node.get(OS_LOGIN, project.get(OS_LOGIN, "")).strip().lower() in TRUE:
        return ""
    alone = OLD_KEYS in node or node.get(BLOCK, "").upper() == "TRUE"
    sources = [node] if alone else [node, project]
    return "\n".join(source[name] for source in sources for name in (KEYS, OLD_KEYS) if name in source)


def parse_keys(text: str) -> KeySet:
    """Read lines `USER:TYPE BASE64 COMMENT`; lines of another shape are skipped, as the guest agent does."""
    return frozenset(filter(None, map(_parse_line, text.splitlines())))


def _parse_line(line: str) -> tuple[str, bytes] | None:
    user, colon, key = line.strip().partition(":")
    words = key.split()
    if not colon or not user or len(words) < 2:
        return None
    try:
        return user, base64.b64decode(words[1], validate=True)
    except ValueError:
        return None
