"""The SSH keys a host accepts, live from its node's `ssh-keys` metadata."""

from __future__ import annotations

import base64
from collections.abc import Callable

KeySet = frozenset[tuple[str, bytes]]


class AuthorizedKeys:
    """The keys in force: those the host booted with, then each change, `delay` seconds after it was made.

    The delay stands for the time a real host's guest agent takes to hear of a change.
    """

    def __init__(self, text: str, delay: float, clock: Callable[[], float]) -> None:
        self._delay = delay
        self._clock = clock
        self._text = text
        self._changes: list[tuple[float, KeySet]] = [(clock(), parse_keys(text))]

    def change(self, text: str) -> None:
        """Take `text` as the new value of `ssh-keys`, in force after the delay."""
        if text != self._text:
            self._text = text
            self._changes.append((self._clock() + self._delay, parse_keys(text)))

    def allows(self, user: str, public_key: bytes) -> bool:
        """Return whether `user` may log in now with this key (its blob in SSH's wire format)."""
        now = self._clock()
        while len(self._changes) > 1 and self._changes[1][0] <= now:
            del self._changes[0]
        return (user, public_key) in self._changes[0][1]


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
