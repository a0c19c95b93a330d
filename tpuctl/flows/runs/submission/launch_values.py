"""Keeps on this machine what a run is started with and the bucket must not hold, for its restarts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tpuctl import atomic_files
from tpuctl.bucket_objects import decoding
from tpuctl.config.files import state_folder
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import users_script
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.flows.runs.submission.restart_policy import users_metadata
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.masking.text import MASK
from tpuctl.nodes import Node
from tpuctl.recovery.records import Machine
from tpuctl.runs import NOT_STORED, Run

LARGEST = 16 << 20
"""Bytes of a file of values."""
MOST_FILES = 200
"""Runs whose values are kept, the newest."""


class LaunchValues(msgspec.Struct, frozen=True):
    """What one run was started with."""

    token: str
    """That of run.json: of two runs with one name."""
    arguments: tuple[str, ...]
    dependencies: tuple[str, ...]
    environment: dict[str, str]
    setup: str
    metadata: dict[str, str] = {}
    """Of the machine."""
    startup_script: str = ""


def keep(bucket: str, run: Run, plan: SubmitPlan) -> list[str]:
    """Write what the record of a run leaves out into a private file, if the run may be started again.

    A disk that takes no file keeps nobody from a submission: a restart asks for the values by name then.
    Returns the sentence that says so.
    """
    hidden = {name: plan.environment[name] for name, value in run.environment.items() if value == NOT_STORED}
    shown = (run.arguments, run.dependencies, run.setup)
    secret = (plan.arguments, plan.dependencies, plan.setup)
    metadata, script = _hidden_settings(run.machine, plan.node)
    if not run.restarts or not (hidden or shown != secret or metadata or script):
        return []
    values = LaunchValues(run.token, plan.arguments, plan.dependencies, hidden, plan.setup, metadata, script)
    path = _path(bucket, run.run)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = msgspec.json.encode(values)
        atomic_files.replace_file(path, [data], mode=atomic_files.PRIVATE)
        _forget_oldest(path.parent)
    except OSError as error:
        return [] if kept(bucket, run) else [_not_kept(run, values, error)]
    return []


def _not_kept(run: Run, values: LaunchValues, error: OSError) -> str:
    """Say what a restart will miss, and the command that gives it."""
    parts = ("arguments", "dependencies", "setup")
    others = [part for part in parts if getattr(run, part) != getattr(values, part)]
    others += [f"--metadata {key}" for key in values.metadata]
    others += ["--startup-script"] if values.startup_script else []
    options = " ".join(f"--secret {name}" for name in values.environment)
    again = f"To start it again: tpuctl watch {run.run} {options}"
    return (
        f"Warning: {', '.join([*values.environment, *others])} of run '{run.run}' could not be kept here"
        f" ({error.strerror or error}). {'A restart is refused without that.' if others else again}"
    )


def _hidden_settings(machine: Machine | None, node: Node) -> tuple[dict[str, str], str]:
    """Return the metadata and the startup script of a node that the record of its machine leaves out."""
    stored = machine.metadata if machine else {}
    metadata = {key: value for key, value in users_metadata(node).items() if stored.get(key) == NOT_STORED}
    has_script = machine is not None and machine.startup_script == NOT_STORED
    return metadata, users_script(node.settings.startup_script) if has_script else ""


def restored_machine(bucket: str, run: Run, machine: Machine) -> Machine:
    """Return the machine of a run with what its record leaves out.

    Raises UsageError that names what this machine does not know.
    """
    values = kept(bucket, run)
    hidden = [key for key, value in machine.metadata.items() if value == NOT_STORED]
    has_script = machine.startup_script == NOT_STORED
    missing = [f"'--metadata {key}'" for key in hidden if values is None or key not in values.metadata]
    missing += ["'--startup-script'"] if has_script and not (values and values.startup_script) else []
    if missing:
        raise UsageError(
            f"Run '{run.run}' cannot be started again from here: its TPU had {' and '.join(missing)}, which"
            " seemed to hold a secret and is not stored.",
            hint="Watch it on the machine that submitted it. Read secrets from Secret Manager on the hosts.",
        )
    if values is None or not (hidden or has_script):
        return machine
    return msgspec.structs.replace(
        machine,
        metadata={**machine.metadata, **{key: values.metadata[key] for key in hidden}},
        startup_script=values.startup_script if has_script else machine.startup_script,
    )


def forget(bucket: str, run: str) -> None:
    """Delete the values of a run that has ended."""
    try:
        _path(bucket, run).unlink(missing_ok=True)
    except OSError:
        pass


def restored(bucket: str, run: Run, given: Mapping[str, str], own: Mapping[str, str]) -> Launch:
    """Return what a run was started with: as its record says, `given` here, or kept on this machine.

    `own` are the variables that tpuctl sets. Raises UsageError that names what nobody knows.
    """
    values = kept(bucket, run)
    environment, missing = dict(own), []
    for name, value in run.environment.items():
        if value != NOT_STORED:
            environment[name] = value
        elif name in given:
            environment[name] = given[name]
        elif values and name in values.environment:
            environment[name] = values.environment[name]
        else:
            missing.append(name)
    if missing:
        raise _missing_variables(run, missing)
    if values:
        return Launch(values.arguments, values.dependencies, environment, values.setup)
    _require_whole(run)
    return Launch(run.arguments, run.dependencies, environment, run.setup)


def _require_whole(run: Run) -> None:
    parts = {"arguments": run.arguments, "dependencies": run.dependencies, "--setup": (run.setup,)}
    for part, texts in parts.items():
        if any(MASK in text for text in texts):
            raise UsageError(
                f"Run '{run.run}' cannot be started again from here: its {part} held a secret, which is not"
                " stored.",
                hint="Watch it on the machine that submitted it. Secrets in variables can be given again:"
                " --secret NAME.",
            )


def _missing_variables(run: Run, missing: list[str]) -> UsageError:
    options = " ".join(f"--secret {name}" for name in missing)
    return UsageError(
        f"Run '{run.run}' cannot be started again from here without the values of {', '.join(missing)}, which"
        " are neither in the bucket nor on this machine.",
        hint=f"Export them, then: tpuctl watch {run.run} {options}. Or watch where it was submitted.",
        missing=missing,
    )


def kept(bucket: str, run: Run) -> LaunchValues | None:
    """Return what is kept here of a run; None for nothing."""
    try:
        with _path(bucket, run.run).open("rb") as stream:
            values = decoding.decode(stream.read(LARGEST), LaunchValues)
    except (OSError, decoding.DecodeError):
        return None
    return values if values.token == run.token else None


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[MOST_FILES:]:
        path.unlink(missing_ok=True)


def _path(bucket: str, run: str) -> Path:
    return state_folder() / "launches" / bucket / f"{run}.json"
