"""Compares two runs: all that their records have of them, and their code file by file.

- Changes the arguments of a script: `--lr 0.1` replaces the value of `--lr`, or is added.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.runs import results
from tpuctl.flows.runs.code.bundles import PART, Bundle
from tpuctl.flows.runs.record import stored_code
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.provenance import HostEnvironment, Results
from tpuctl.runs import NOT_STORED, Run, Tpu, Verdict

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


ARGUMENTS, CODE, PACKAGES, DATA, MACHINE, SEEDS, JOB, VARIABLES, RESULTS = PARTS = (
    "arguments", "code", "packages", "data", "machine", "seeds", "job", "variables", "results",
)  # fmt: skip
_JOB = (
    "script", "framework", "dependencies", "requires_python", "python", "requirements", "wheelhouse", "setup",
    "setup_timeout",
)  # fmt: skip
"""Fields of run.json that say how the script is run."""
_WITH_TIMES = "tensorboard/"
"""Its files have the time in their names and in each value: they never are the same."""


@dataclass(frozen=True)
class Difference:
    """Something that two runs do not have in common; None is for what one of them does not have."""

    part: str
    name: str
    first: str | None
    second: str | None


@dataclass
class Comparison:
    """What two runs have in common, and what not."""

    differences: list[Difference] = field(default_factory=list)
    code: list[FileDifference] = field(default_factory=list)
    """Files that differ, which are among the differences, too."""
    unknown: list[str] = field(default_factory=list)
    """Sentences about what the records do not have."""

    @property
    def same(self) -> list[str]:
        """Parts without a difference."""
        return [part for part in PARTS if part not in {difference.part for difference in self.differences}]

    def add(self, part: str, first: Mapping[str, str], second: Mapping[str, str]) -> None:
        """Add each name of which the values differ."""
        for name in dict.fromkeys((*first, *second)):
            if first.get(name) != second.get(name):
                self.differences.append(Difference(part, name, first.get(name), second.get(name)))


@dataclass(frozen=True)
class Side:
    """One of two runs, with how it ended."""

    run: StoredRun
    verdict: Verdict | None

    @property
    def record(self) -> Run:
        """Its record; raises NotFoundError."""
        return self.run.record


def compare(first: Side, second: Side) -> Comparison:
    """Return in what two runs differ; raises NotFoundError for one that does not exist."""
    comparison, sides = Comparison(), (first, second)
    records = first.record, second.record
    comparison.add(ARGUMENTS, *(named_words(record.arguments) for record in records))
    _compare_code(comparison, *sides)
    _compare_packages(comparison, *sides)
    comparison.add(DATA, *map(_data, records))
    comparison.add(MACHINE, *map(_machine, sides))
    comparison.add(SEEDS, *(record.seeds for record in records))
    comparison.add(JOB, *map(_job, records))
    comparison.add(VARIABLES, *(record.environment for record in records))
    _note_variables(comparison, *records)
    _compare_results(comparison, *sides)
    return comparison


def _compare_code(comparison: Comparison, first: Side, second: Side) -> None:
    records = first.record, second.record
    commits = [{"commit": record.git.commit} if record.git else {} for record in records]
    if records[0].bundle_sha256 == records[1].bundle_sha256:
        return  # another commit of the same files is no difference
    comparison.add(CODE, *commits)
    try:
        before, after = (stored_code.fetch(side.run.bucket, side.record) for side in (first, second))
    except (NotFoundError, StateError) as error:
        comparison.add(CODE, *({"files": record.bundle_sha256[:12]} for record in records))
        comparison.unknown.append(f"The files of the code are not compared. {error.message}")
        return
    comparison.code = differences(before, after, (first.run.name, second.run.name))
    for file in comparison.code:
        sizes = [None if size is None else f"{size:,} bytes" for size in file.sizes]
        comparison.differences.append(Difference(CODE, file.name, *sizes))


def _compare_packages(comparison: Comparison, first: Side, second: Side) -> None:
    environments = [stored_code.environment_of(side.run, side.verdict) for side in (first, second)]
    for side, environment in zip((first, second), environments, strict=True):
        if environment is None:
            comparison.unknown.append(f"The packages of run '{side.run.name}' are not recorded.")
    if None not in environments:
        comparison.add(PACKAGES, *(_packages(each) for each in environments if each))


def _packages(environment: HostEnvironment) -> dict[str, str]:
    python = f"{environment.python} ({environment.implementation})"
    return {"Python": python, **dict(sorted(environment.resolved.items()))}


def _data(record: Run) -> dict[str, str]:
    if record.dataset is None:
        return {}
    return {"dataset": str(record.dataset), "manifest": record.dataset.manifest_sha256}


def _machine(side: Side) -> dict[str, str]:
    """What a result may depend on: not the node's name and zone."""
    attempts = side.run.attempt_numbers(side.verdict)
    tpu: Tpu | None = side.run.last_readable_attempt(side.verdict).record.tpu if attempts else None
    known = {"accelerator": side.record.accelerator, "attempts": str(len(attempts))}
    if tpu is None:
        return known
    known |= {"slices": str(len(tpu.slices))} if tpu.slices else {}
    return {**known, "runtime": tpu.runtime, "hosts": str(tpu.hosts), "spot": "yes" if tpu.spot else "no"}


def _job(record: Run) -> dict[str, str]:
    fields = {name.replace("_", " "): getattr(record, name) for name in _JOB}
    shown = {
        name: ", ".join(value) if isinstance(value, tuple) else str(value) for name, value in fields.items()
    }
    return {**{name: value for name, value in shown.items() if value}, "packages from": record.packages}


def _note_variables(comparison: Comparison, first: Run, second: Run) -> None:
    """Name the variables of which nobody knows whether they were the same."""
    both = first.environment.items() & second.environment.items()
    is_same_code = first.bundle_sha256 == second.bundle_sha256
    of_header = {*first.of_header}.intersection(second.of_header) if is_same_code else set()
    known = of_header | first.seeds.keys() & second.seeds.keys()
    hidden = sorted(name for name, value in both if value == NOT_STORED and name not in known)
    if hidden:
        comparison.unknown.append(f"The values of {', '.join(hidden)} are not stored, and not compared.")


def _compare_results(comparison: Comparison, first: Side, second: Side) -> None:
    sides = (first, second)
    comparison.add(RESULTS, *map(_outcome, sides))
    records = [results.ensured(side.run.bucket, side.run.paths, side.verdict) for side in sides]
    for side, record in zip(sides, records, strict=True):
        if record is None:
            reason = "has not ended" if side.verdict is None else "has no record of its results"
            comparison.unknown.append(f"Results are not compared: run '{side.run.name}' {reason}.")
        elif not record.is_whole:
            comparison.unknown.append(f"{record.left_out:,} files of run '{side.run.name}' are not compared.")
    if None not in records:
        comparison.add(RESULTS, *(dict(_files(record)) for record in records if record))


def _outcome(side: Side) -> dict[str, str]:
    if side.verdict is None:
        return {}
    code = side.verdict.exit_code
    return {"outcome": side.verdict.outcome, **({} if code is None else {"exit code": str(code)})}


def _files(record: Results) -> Iterator[tuple[str, str]]:
    for file in record.listed_files:
        if not file.name.startswith(_WITH_TIMES):
            yield file.name, f"{file.bytes:,} bytes, CRC-32C {file.crc32c or 'unknown'}"


LONGEST = 1 << 20
"""Bytes of a file that is compared line by line."""
MOST_LINES = 5000
"""Lines of such a file: the comparison takes a time that grows with their square."""
LONGEST_LINE = 10_000
"""Characters of a line of such a file: what generates longer ones is not read line by line."""
MOST_HELD = 8 << 20
"""Bytes of such files that are held at once; the others have no lines."""
MOST_SHOWN = 2000
"""Lines of all differences."""


@dataclass(frozen=True)
class FileDifference:
    """One file that only one bundle has, or both have with other content."""

    name: str
    sizes: tuple[int | None, int | None]
    """Bytes in the first and the second one; None where it is absent."""
    lines: tuple[str, ...] = ()
    """As `diff -u` has them; empty for a binary or a long file."""


def differences(first: Bundle, second: Bundle, names: tuple[str, str]) -> list[FileDifference]:
    """Return the files in which two bundles differ, in the order of their names.

    Lines begin with the `names` of the two. Once there are too many, the other files have no lines.
    """
    digests = _digests(first), _digests(second)
    every = sorted({*digests[0], *digests[1]})
    unequal = [name for name in every if digests[0].get(name) != digests[1].get(name)]
    wanted = frozenset(unequal)
    texts = _texts(first, wanted), _texts(second, wanted)
    result, shown = [], 0
    for name in unequal:
        sizes = tuple(digest[name][0] if name in digest else None for digest in digests)
        lines = _unified(name, texts, names) if shown < MOST_SHOWN else ()
        lines = lines[: MOST_SHOWN - shown]
        shown += len(lines)
        result.append(FileDifference(name, (sizes[0], sizes[1]), lines))
    return result


def _digests(code: Bundle) -> dict[str, tuple[int, str]]:
    """Return the size and the hash of each file."""
    result = {}
    for member, stream in code.members():
        digest = hashlib.sha256()
        while part := stream.read(PART):
            digest.update(part)
        result[member.name] = member.size, digest.hexdigest()
    return result


def _texts(code: Bundle, wanted: Collection[str]) -> dict[str, list[str] | None]:
    """Return the lines of some files; None for what is no text, or too long or too much."""
    result: dict[str, list[str] | None] = {}
    left = MOST_HELD
    for member, stream in code.members() if wanted else ():
        if member.name in wanted:
            data = stream.read() if member.size <= min(LONGEST, left) else b"\0"
            left -= len(data)
            lines = data.decode("utf-8", "replace").splitlines()
            is_shown = b"\0" not in data and len(lines) <= MOST_LINES
            is_shown = is_shown and max(map(len, lines), default=0) <= LONGEST_LINE
            result[member.name] = lines if is_shown else None
    return result


def _unified(
    name: str, texts: tuple[Mapping[str, list[str] | None], ...], names: tuple[str, str]
) -> tuple[str, ...]:
    import difflib  # noqa: PLC0415  slow, and only code that differs needs it

    before, after = (text.get(name, []) for text in texts)
    if before is None or after is None:
        return ()
    old, new = (
        f"{run}/{name}" if name in text else "/dev/null" for run, text in zip(names, texts, strict=True)
    )
    return tuple(_limited(difflib.unified_diff(before, after, old, new, lineterm="")))


def _limited(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == MOST_SHOWN:
            return
        yield line
