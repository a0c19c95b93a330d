"""Writes README.md and run.sh of an archive: what the run was, how to run it, and what is missing."""

from __future__ import annotations

import posixpath
import re
import shlex
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuctl import printable
from tpuctl.host.worker.records import COMMAND, MODULE, NOTEBOOK, PLACEHOLDER, SCRIPT, SHELL
from tpuctl.job_header import Header
from tpuctl.masking import MASK
from tpuctl.provenance import HostEnvironment, Results
from tpuctl.runs import NOT_STORED, Run, Verdict

FOLDERS = (
    ("TPUCTL_MODEL_DIR", "AIP_MODEL_DIR", "outputs"),
    ("TPUCTL_CHECKPOINT_DIR", "AIP_CHECKPOINT_DIR", "checkpoints"),
    ("TPUCTL_TENSORBOARD_DIR", "AIP_TENSORBOARD_LOG_DIR", "tensorboard"),
)
"""As hosts have them: host/worker/preparation/steps.py."""
BEGINNING = """#!/bin/sh
# Runs the script of run {run} as it was run, with folders beside this file in place of the bucket.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=${{RESULTS:-"$here/results"}}
"""


def missing_variables(record: Run, header: Header) -> list[str]:
    """Return the variables whose values are recorded nowhere: whoever runs the archive gives them."""
    known = _known_variables(record, header)
    return sorted(name for name in record.environment if name not in known)


def is_variable(name: str) -> bool:
    """Whether a shell can set a variable of this name."""
    return name.isidentifier() and name.isascii()


def missing_arguments(record: Run) -> list[int]:
    """Return which arguments, counted from 1, are not stored, as they look like secrets."""
    return [number for number, argument in enumerate(record.arguments, start=1) if MASK in argument]


def run_script(record: Run, header: Header) -> str:
    """Return run.sh."""
    lines = [*_folders(), *_variables(record, header)]
    for number in missing_arguments(record):
        lines.append(f"# Argument {number} is not stored, as it looks like a secret.")
        lines.append(f': "${{ARGUMENT_{number}:?argument {number} of the script, which was not stored}}"')
    if record.setup:
        lines.append(f"# The hosts ran before: {ascii(record.setup)[1:-1]}")
    words = [
        f'"$ARGUMENT_{number}"' if MASK in argument else _argument(argument)
        for number, argument in enumerate(record.arguments, start=1)
    ]
    lines += [*_place(record), " ".join(["exec", *_program(record), *words])]
    return BEGINNING.format(run=record.run) + "\n".join(lines) + "\n"


def _place(record: Run) -> Iterator[str]:
    """Yield what makes the working folder, modules and commands as they were on the host."""
    if record.kind != SCRIPT or record.directory or "/" in record.script:
        yield 'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/code:$here/code/src"'
    if record.kind in (SHELL, COMMAND):
        yield 'export PATH="$here/.venv/bin:$PATH"'
    yield 'cd "$here/code"'
    if record.directory:
        yield f"mkdir -p ./{_word(record.directory)} && cd ./{_word(record.directory)}"


def _program(record: Run) -> list[str]:
    """Return the words that start the program; Python takes no path for an option."""
    python = '"${PYTHON:-$here/.venv/bin/python}"'
    if record.kind == COMMAND:
        return [_argument(record.script)]
    if record.kind == MODULE:
        return [python, "-m", _word(record.script)]
    script = posixpath.relpath(record.script, record.directory or ".")
    if record.kind == NOTEBOOK:
        return [python, '"$here/cells.py"', _word(script), f'"$results/outputs"/{_word(script)}']
    return ["bash" if record.kind == SHELL else python, _word(f"./{script}" if script[0] == "-" else script)]


def _argument(text: str) -> str:
    """Return an argument as one word, with the variables that hosts fill in."""
    parts = PLACEHOLDER.split(text)
    quoted = (f'"${{{part}:-}}"' if number % 2 else _word(part) for number, part in enumerate(parts))
    return "".join(word for word, part in zip(quoted, parts, strict=True) if part) or _word(text)


def _folders() -> Iterator[str]:
    for own, vertex, folder in FOLDERS:
        yield f'mkdir -p "$results/{folder}"'
        yield f'export {own}="$results/{folder}" {vertex}="$results/{folder}"'


def _variables(record: Run, header: Header) -> Iterator[str]:
    yield f"export TPUCTL_RUN={record.run} TPUCTL_ATTEMPT=1 TPUCTL_WORKER=0 TPUCTL_WORKERS=1"
    yield "export PYTHONUNBUFFERED=1"
    yield f"export TPUCTL_ACCELERATOR={_word(record.accelerator)}"
    if record.framework == "tensorflow":
        yield 'export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"'
    if record.dataset:
        yield f'export TPUCTL_DATA_DIR="${{TPUCTL_DATA_DIR:-$here/data/{record.dataset}}}"'
    for name, value in sorted(_known_variables(record, header).items()):
        yield f"export {name}={_word(value)}"
    for name in filter(is_variable, missing_variables(record, header)):
        yield f': "${{{name}:?a variable of the script, whose value was not stored}}"'


def _known_variables(record: Run, header: Header) -> Mapping[str, str]:
    """Return the variables of the script whose values are stored, in the header, or seeds."""
    known = {}
    for name, stored in record.environment.items():
        seed, own = record.seeds.get(name), header.tpuctl.env.get(name)
        value = stored if stored != NOT_STORED else seed if seed is not None else own
        if value is not None and MASK not in value and is_variable(name):
            known[name] = value
    return known


def _word(text: str) -> str:
    """Return text as one word of a shell that a terminal shows as it is: other characters are octal bytes."""
    if printable.line(text) == text:
        return shlex.quote(text)
    body = text.rstrip("\n")  # which a substitution leaves out
    shown = "".join(character if _is_plain(character) else _octal(character) for character in body)
    return f"\"$(printf '{shown}')\"" + "'\n'" * (len(text) - len(body))


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isprintable() and character not in "'%\\"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Contents:
    """What an archive is made from."""

    record: Run
    verdict: Verdict
    header: Header
    environment: HostEnvironment | None
    results: Results | None
    has_data: bool
    hosts: int


_RELEASE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,5})?")
"""Of Python, as the names of its commands have it."""
_MD5 = re.compile("[A-Za-z0-9+/]{22}==")
"""In base64."""
_MARKDOWN = re.compile(r"[\\`<\[]")
"""What begins a link, an image, code or HTML."""


def readme(contents: Contents, unnamed: Sequence[str] = ()) -> str:
    """Return README.md; `unnamed` are packages that have no line in requirements.txt.

    No text of a record is more than words in it: neither a line of its own nor a command nor markup.
    """
    record, verdict = contents.record, contents.verdict
    return "\n".join(
        [
            f"# The run {record.run}",
            "",
            f"It was submitted at {record.created} for {_prose(record.accelerator)}, and {verdict.outcome}.",
            "",
            f"    {printable.line(shlex.join(record.command))}",
            "",
            *_facts(contents),
            "",
            "## Run it again",
            "",
            f"You need {_python(contents)}, and nothing of Google Cloud or tpuctl. In this folder:",
            "",
            *(f"    {command}" for command in commands(contents)),
            "",
            "`run.sh` sets the variables that the script had, with folders below `results/` in place of those"
            " in the bucket, and starts it in `code/`. `md5sum` compares each file with its checksum in the"
            " bucket. A script whose random numbers have seeds writes the same bytes on the"
            " same kind of processor.",
            "",
            *_missing(contents, unnamed),
            *_files(contents),
        ]
    )


def commands(contents: Contents) -> Iterator[str]:
    """Yield what somebody types."""
    release = _RELEASE.match(contents.environment.python) if contents.environment else None
    yield f"python{release[0] if release else '3'} -m venv .venv"
    record = contents.record
    if record.requirements:
        yield f".venv/bin/pip install -r {shlex.quote(f'code/{record.requirements}')} -c constraints.txt"
    wheels = f" --find-links {shlex.quote(f'code/{record.wheelhouse}')}" if record.wheelhouse else ""
    yield f".venv/bin/pip install{wheels} -r requirements.txt -c constraints.txt"
    yield "sh run.sh"
    if contents.results and any(checksums(contents.results)):
        yield "(cd results && md5sum -c ../record/results.md5)"


def _facts(contents: Contents) -> Iterator[str]:
    record = contents.record
    facts = {
        "code (SHA-256 of its archive)": record.bundle_sha256,
        "git commit": f"{record.git.commit}{', with changes' * bool(record.git.diff)}" if record.git else "",
        "seeds": ", ".join(f"{name} {value}" for name, value in record.seeds.items()),
        "dataset": f"{record.dataset}, manifest {record.dataset.manifest_sha256}" if record.dataset else "",
        "hosts": str(contents.hosts) if contents.hosts > 1 else "",
        "results (SHA-256 of names and checksums)": contents.results.digest if contents.results else "",
        "submitted again from": record.origin,
    }
    yield from (f"- {name}: {_prose(value)}" for name, value in facts.items() if value)


def _python(contents: Contents) -> str:
    environment = contents.environment
    if environment is None:
        return _prose(f"Python {contents.record.requires_python}".strip())
    return _prose(f"Python {environment.python} on {environment.system} ({environment.processor})")


def _missing(contents: Contents, unnamed: Sequence[str]) -> Iterator[str]:
    notes = list(_notes(contents, unnamed))
    if notes:
        yield from ("## What is not in here", "", *(f"- {note}" for note in notes), "")


def _notes(contents: Contents, unnamed: Sequence[str]) -> Iterator[str]:
    record = contents.record
    for name in missing_variables(record, contents.header):
        if not is_variable(name):
            yield f"The variable {_prose(name)}: no shell sets one of this name."
            continue
        yield f"The value of the variable {name}: set it before you run it, `export {name}=...`."
    for number in missing_arguments(record):
        yield (
            f"Argument {number}, which looks like a secret: set it before you run it,"
            f" `export ARGUMENT_{number}=...`."
        )
    if record.dataset and not contents.has_data:
        yield (
            f"The dataset {record.dataset}. Put its files into data/{record.dataset}: `tpuctl data pull"
            f" {record.dataset} --to data/{record.dataset}` fetches them from a bucket that has it, and"
            f" `tpuctl data upload` makes it of its source. The digest of its manifest has to be"
            f" {record.dataset.manifest_sha256}."
        )
    if contents.environment is None:
        yield "The versions of its packages: the run has no record of them."
    if unnamed:
        yield (
            f"Packages that are on no index: {_prose(', '.join(unnamed))}. `record/environment.json` has the"
            " addresses that the host had them from: install only what you trust."
        )
    if contents.hosts > 1:
        yield f"The {contents.hosts} hosts: run.sh runs the script of worker 0 alone."
    if contents.results and (count := contents.results.files - len(list(checksums(contents.results)))):
        yield f"The checksums of {count} file{'s' * (count > 1)}: `record/results.json` has those it knows."
    if record.setup:
        yield f"What its set-up command has made on the hosts: {_prose(record.setup)}"


def _files(contents: Contents) -> Iterator[str]:
    yield from ("## Files", "")
    yield "- `code/`: the script, and what it imports"
    yield "- `requirements.txt`: what it needs"
    yield "- `constraints.txt`: the versions of all packages that were there"
    if contents.has_data:
        yield "- `data/`: the dataset, as TFRecord, readable by TensorFlow Datasets"
    yield "- `record/`: the record of the run, how it ended, its packages, and the checksums of its results"
    yield ""


def checksums(results: Results) -> Iterator[str]:
    """Yield a line for `md5sum -c` for each file with an MD5 and a plain name in the folder of results."""
    for file in results.listed_files:
        is_inside = {"", ".", "..", "-"}.isdisjoint(file.name.split("/")) and "\\" not in file.name
        if is_inside and _MD5.fullmatch(file.md5) and printable.line(file.name) == file.name:
            yield f"{b64decode(file.md5).hex()}  {file.name}"


def _prose(text: str) -> str:
    """Return text as words of one printable line."""
    return _MARKDOWN.sub(r"\\\g<0>", printable.line(text))
