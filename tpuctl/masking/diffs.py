"""Leaves lines with secrets out of a diff as git prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tpuctl.masking.text import Secret, masked, secrets_in

SETTINGS_SUFFIXES = frozenset({
    ".bash", ".cfg", ".conf", ".env", ".ini", ".json", ".properties", ".sh", ".tfvars", ".toml",
    ".txt", ".yaml", ".yml", ".zsh",
})  # fmt: skip
"""Files in which a value needs no quotes."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Place:
    """A line with a secret, and what the secret looks like."""

    file: str
    line: int
    kind: str


def is_settings_file(name: str) -> bool:
    """Return whether a file rather holds settings than code, by its name."""
    path = PurePosixPath(name)
    return path.suffix in SETTINGS_SUFFIXES or path.name.startswith(".env")


def masked_diff(diff: str) -> tuple[str, list[Place]]:
    """Return a diff whose lines with secrets are replaced, and the places of these lines.

    A last line without an end was cut, perhaps in a secret: it is left out.
    """
    reader = _DiffReader()
    lines = [reader.read(line) for line in diff.split("\n")[:-1]]
    return "".join(f"{line}\n" for line in lines), reader.places


@dataclass
class _DiffReader:
    """Follows files, lines and private keys through a diff."""

    places: list[Place] = field(default_factory=list)
    _file: str = ""
    _old: int = 0
    _new: int = 0
    _old_left: int = 0
    _new_left: int = 0
    _in_key: bool = False

    def read(self, line: str) -> str:
        """Return a line as it can be stored."""
        if self._old_left > 0 or self._new_left > 0:
            return self._read_content(line)
        self._in_key = False
        hunk = _HUNK.match(line)
        if hunk:
            old, old_left, new, new_left = (int(number or 1) for number in hunk.groups())
            self._old, self._old_left, self._new, self._new_left = old, old_left, new, new_left
        elif line.startswith(("--- ", "+++ ")) and not line.endswith("/dev/null"):
            self._file = line[4:].strip('"').partition("/")[2].rstrip("\t")
        return masked(line)

    def _read_content(self, line: str) -> str:
        sign, content = line[:1], line[1:]
        if sign == "\\":  # "\ No newline at end of file"
            return line
        number = self._old if sign == "-" else self._new
        self._count(sign)
        kind = self._kind(content)
        if not kind:
            return line
        self.places.append(Place(self._file, number, kind))
        return f"{sign}[left out: looks like {kind}]"

    def _count(self, sign: str) -> None:
        if sign != "+":
            self._old, self._old_left = self._old + 1, self._old_left - 1
        if sign != "-":
            self._new, self._new_left = self._new + 1, self._new_left - 1

    def _kind(self, content: str) -> str:
        """What the secret in a line looks like, empty without one; follows a key over its lines."""
        secrets = secrets_in(content, is_code=not is_settings_file(self._file))
        if self._in_key:
            self._in_key = "-----END" not in content
            return "a private key"
        self._in_key = any(_is_open_key(content, secret) for secret in secrets)
        return secrets[0].kind if secrets else ""


def _is_open_key(content: str, secret: Secret) -> bool:
    return content.startswith("-----BEGIN", secret.start) and "-----END" not in content[secret.start :]
