"""Adds entries to the user's ~/.ssh/config and takes them away: all else in it stays byte for byte."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tpuctl.atomic_files import PRIVATE, swap_file
from tpuctl.errors import ConfigError, ConflictError, StateError
from tpuctl.flows.remote.ssh_entries import TITLE, Entry
from tpuctl.local.private_folder import make_missing_folders

FOLDER = "tpuctl.d"
COMMENT = b"# TPUs: 'tpuctl ssh-config --install' wrote these two lines, '--remove' takes them away.\n"
SECTION = re.compile(rb"^[ \t]*(host|match)\b", re.IGNORECASE | re.MULTILINE)


class SshConfig:
    """The user's configuration of OpenSSH, with a file for each of our entries in a folder beside it."""

    def __init__(self, home: Path) -> None:
        self.path = home / ".ssh" / "config"
        self.folder = home / ".ssh" / FOLDER

    def install(self, entries: Iterable[Entry]) -> None:
        """Write entries, and the line that includes them; the same again changes nothing.

        Raises ConflictError for a name that a node of another place has, ConfigError when nothing can be
        written.
        """
        with _written(self.path):
            for entry in entries:
                self._require_free(entry)
                make_missing_folders(self.folder)
                _replace_config(self.folder / entry.file_name, entry.text.encode(), PRIVATE)
            content = self._content()
            if self._include not in content[: _first_section(content)]:
                self._write(COMMENT + self._include + content)

    def remove(self, place: str, names: Sequence[str] = (), *, everything: bool = False) -> list[str]:
        """Delete the entries of these nodes of a place, else of its only one or of all; return their names.

        A node's name is that of its entries in each zone, too. The line that includes them goes with the last
        one. Raises StateError for several nodes where none is named, ConfigError for what cannot be written.
        """
        files = {self._node(path, place): path for path in self._files()}
        nodes = {node: path for node, path in files.items() if node}
        if len(nodes) > 1 and not (names or everything):
            raise StateError(
                f"There are entries of {len(nodes)} TPUs: {', '.join(sorted(nodes))}.",
                hint="Name one of them. All of them: tpuctl ssh-config --remove --all",
            )
        removed = [node for node in sorted(nodes) if not names or {node, node.partition(".")[0]} & set(names)]
        with _written(self.path):
            for node in removed:
                nodes[node].unlink(missing_ok=True)
            if not self._files():
                self._exclude()
        return removed

    def _exclude(self) -> None:
        content = self._content()
        without = content.replace(COMMENT + self._include, b"").replace(self._include, b"")
        if without != content:
            self._write(without)
        if self.folder.is_dir():
            self.folder.rmdir()

    @property
    def _include(self) -> bytes:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", os.fspath(self.folder))
        return b'Include "' + os.fsencode(pattern) + b'/*"\n'

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob("*") if path.is_file()] if self.folder.is_dir() else []

    def _node(self, path: Path, place: str) -> str:
        """Return the node whose entry a file holds; empty where it is of another place."""
        title = _title(path)
        before, after = TITLE.format("\0", place).split("\0")
        is_ours = title.startswith(before) and title.endswith(after)
        return title.removeprefix(before).removesuffix(after) if is_ours else ""

    def _require_free(self, entry: Entry) -> None:
        title = _title(self.folder / entry.file_name)
        if title not in ("", entry.title):
            raise ConflictError(
                f"'{entry.file_name}' is {title.removeprefix('# tpuctl: ')} in {self.folder}.",
                hint=f"Remove that entry first: rm {self.folder / entry.file_name}",
            )

    def _content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def _write(self, content: bytes) -> None:
        """Replace the file, or the one that a link names, as a whole and with its mode."""
        real = self.path.resolve()
        make_missing_folders(real.parent)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else PRIVATE
        _replace_config(real, content, mode)


def _first_section(content: bytes) -> int:
    """The place of the first line that makes what follows hold for some hosts only."""
    match = SECTION.search(content)
    return match.start() if match else len(content)


def _title(path: Path) -> str:
    """The first line of a file; empty where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.readline().rstrip("\n")
    except FileNotFoundError:
        return ""


def _replace_config(path: Path, content: bytes, mode: int) -> None:
    """Replace a file unless it has the content, also while another process does."""
    if path.is_file() and path.read_bytes() == content:
        return
    swap_file(path, content, mode=mode)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path} cannot be written: {error.strerror}.",
            hint="'tpuctl ssh-config' without --install prints the entries.",
        ) from error
