"""Changes the arguments of a script: `--lr 0.1` replaces the value of `--lr`, or is added."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.errors import UsageError

_OPTION = re.compile(r"--?[A-Za-z_][^=\s]*(?P<value>=.*)?", re.DOTALL)
_PAIR = re.compile(r"[+~]{0,2}(?P<name>[A-Za-z_][\w./-]*)=.*", re.DOTALL)
"""`lr=0.1`, as Hydra takes it."""


@dataclass(frozen=True)
class _Group:
    """An option with the words after it, or one word that is none's."""

    name: str
    """`--lr`, or `lr=`; empty for a word that has no name."""
    words: tuple[str, ...]

    @property
    def is_joined(self) -> bool:
        """Whether its value is in the same word: `--lr=0.1`, `lr=0.1`."""
        return "=" in self.words[0]

    @property
    def values(self) -> tuple[str, ...]:
        """The words after it; of `--lr=0.1` those that are its own value come first."""
        return self.words[1:]


def changed(arguments: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """Return arguments with changes: each option of `changes` replaces the same option, or is added.

    An option replaces as many words as it has: `--lr 0.1` and `--lr=0.1` one after `--lr`.
    Raises UsageError for what could mean several things: a word without an option, an option that the
    arguments have twice, and one that they have with another number of words after it.
    """
    result = _groups(arguments)
    for change in _groups(changes):
        if not change.name:
            raise _unclear(
                f"'{change.words[0]}' has no option before it, and it is not known what it replaces"
            )
        places = [index for index, group in enumerate(result) if group.name == change.name]
        if len(places) > 1:
            raise _unclear(f"the run has {change.name} {len(places)} times")
        if places:
            result[places[0]] = _replaced(result[places[0]], change)
        else:
            result.append(change)
    return tuple(word for group in result for word in group.words)


def _replaced(before: _Group, change: _Group) -> _Group:
    rest = before.words[1:]
    if change.is_joined:  # one word, for certain
        rest = rest if before.is_joined else rest[1:]
        return _Group(change.name, (*change.words, *rest))
    if before.is_joined:
        if len(change.values) != 1:
            raise _counts(change, 1)
        return _Group(change.name, (*change.words, *rest))
    if len(change.values) != len(before.values):
        raise _counts(change, len(before.values))
    return change


def _groups(words: Sequence[str]) -> list[_Group]:
    """Split words before each that names something; what follows an option is taken for its values."""
    groups: list[_Group] = []
    for word in words:
        option, pair = _OPTION.fullmatch(word), _PAIR.fullmatch(word)
        if option:
            groups.append(_Group(word.partition("=")[0], (word,)))
        elif pair:
            groups.append(_Group(f"{pair['name']}=", (word,)))
        elif groups and groups[-1].name.startswith("-"):
            groups[-1] = _Group(groups[-1].name, (*groups[-1].words, word))
        else:
            groups.append(_Group("", (word,)))
    return groups


def _counts(change: _Group, before: int) -> UsageError:
    words = {0: "no word", 1: "1 word"}
    after = words.get(before, f"{before} words")
    return _unclear(f"{change.name} has {len(change.values)} after it here, and {after} in the run")


def _unclear(reason: str) -> UsageError:
    return UsageError(
        f"The change of the arguments is not clear: {reason}.",
        hint="Write --OPTION=VALUE for one value, or all arguments, with --all-arguments before --.",
    )


def named_words(arguments: Sequence[str]) -> dict[str, str]:
    """Return option -> value, to be compared: of `--lr 0.1` and `--lr=0.1` the same.

    A word without an option has its place among those, counted from 1, and so has an option that is repeated.
    """
    words, counts = dict[str, str](), Counter[str]()
    for group in _groups(arguments):
        name = group.name.rstrip("=")
        counts[name] += 1
        if not name:
            name = f"word {counts[name]}"
        elif counts[name] > 1:
            name = f"{name} ({counts[name]})"
        values = group.words if not group.name else group.words[1:]
        first = group.words[0].partition("=")[2:] if group.name and group.is_joined else ()
        words[name] = shlex.join((*first, *values))
    return words
