"""Turns names from elsewhere into paths below a folder, or refuses them.

Whoever writes to a bucket names its objects. A path that is accepted stays in the folder on every system, and
is none that git or another program executes or obeys when somebody works in the folder.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_PART = 250
"""Bytes of a file's name in UTF-8: the file systems allow 255, some of them also for a name with a suffix."""
_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of what no name of a file needs: control characters, halves of pairs, line ends."""
_DRIVE = re.compile(r"[A-Za-z]:")
_IGNORED = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Code points that HFS+ leaves out of names, as in git's utf8.c."""
_REPOSITORY = re.compile(r"(\.(git|hg|svn|bzr|jj)|git~\d+)[ .]*(:.*)?")
"""Folders of version control, also as NTFS reads their names (git's is_ntfs_dotgit): CVE-2014-9390."""
_HEAD = re.compile(r"head[ .]*(:.*)?")
"""A file that makes the folder around it a repository for git, which obeys the `config` beside it."""
_SETTINGS = re.compile(r"(tpuctl\.toml|tpuctl~\d+\.tom)[ .]*(:.*)?")
"""tpuctl's own settings, which it takes from the folder where it is called."""


class UnsafeNameError(ValueError):
    """A name must not be written to this disk; the text says why and fits after the name."""


def local_parts(name: str, *, may_be_hidden: bool = False) -> tuple[str, ...]:
    """Return the parts of the path that a name such as `outputs/model.h5` has below a folder.

    Raises UnsafeNameError.
    """
    parts = tuple(name.split("/"))
    if {"", ".", ".."}.intersection(parts):
        raise UnsafeNameError("leads out of the folder")
    if "\\" in name or _DRIVE.match(name):
        raise UnsafeNameError("is a path of another system")
    if any(unicodedata.category(character) in _CONTROL for character in name):
        raise UnsafeNameError("has control characters")
    if parts[0].startswith(".") and not may_be_hidden:
        raise UnsafeNameError("is a hidden file or folder")
    for part in parts:
        _check_part(part)
    if _HEAD.fullmatch(_plain(parts[-1])):
        raise UnsafeNameError("would make the folder a git repository")
    return parts


def _check_part(part: str) -> None:
    if len(part.encode()) > LONGEST_PART:
        raise UnsafeNameError("is too long for a file")
    plain = _plain(part)
    if _REPOSITORY.fullmatch(plain):
        raise UnsafeNameError("is a folder of version control")
    if _SETTINGS.fullmatch(plain):
        raise UnsafeNameError("is a file of settings for tpuctl")


def _plain(part: str) -> str:
    """Return a name as the least exact of all file systems compares it."""
    return unicodedata.normalize("NFKC", part.translate(_IGNORED)).casefold()
