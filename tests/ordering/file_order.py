"""A pytest plugin: the order in which several processes get the files, and which files a run leaves out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.paths import ROOT

LONG = (
    "tests/jobs/",
    "tests/crashes/",
    "tests/sim/guest/test_tutorials.py",
    "tests/cli/runs/test_digits.py",
    "tests/worker/test_program.py",
    "tests/cli/test_story.py",
    "tests/cli/test_hostile_input.py",
    "tests/sim/guest/findings/test_programs.py",
    "tests/sim/tpu/clients/test_gcloud.py",
    "tests/data/test_memory.py",
    "tests/soak/",
    "tests/sim/unmodified/",
    "tests/cli/runs/test_hostile_records.py",
    "tests/cli/datasets/test_hostile_manifests.py",
    "tests/cli/nodes/test_race.py",
    "tests/cli/nodes/test_dry_run.py",
    "tests/cli/simulator/test_iam.py",
    "tests/cli/runs/test_secrets.py",
    "tests/cli/test_terminal.py",
    "tests/data/images/test_decoding.py",
    "tests/cli/nodes/test_expiry.py",
    "tests/cli/remote/",
    "tests/cli/nodes/test_creation_options.py",
    "tests/bucket_objects/test_fuzz.py",
    "tests/contract/test_recorder.py",
    "tests/contract/test_table.py",
    "tests/config/test_turkish_locale.py",
    "tests/cli/nodes/test_interrupts.py",
    "tests/cli/nodes/test_queue.py",
    "tests/sim/guest/",
    "tests/sim/gcs/clients/",
    "tests/sim/iam/test_tensorflow.py",
    "tests/flows/runs/checkpoints/test_libraries.py",
    "tests/flows/runs/local_copy/test_changing_bucket.py",
    "tests/data/tfrecord/test_tensorflow.py",
    "tests/sim/test_restart.py",
    "tests/cli/simulator/test_faults.py",
    "tests/sim/tpu/test_state_machine.py",
    "tests/terraform/mistakes/test_mistakes.py",
    "tests/sim/gcs/http/test_fuzz.py",
    "tests/cloud/ssh/",
    "tests/flows/datasets/test_upload.py",
    "tests/flows/datasets/test_tfds.py",
    "tests/sim/compute/test_gcloud.py",
    "tests/cli/datasets/test_commands.py",
    "tests/terraform/",
    "tests/data/output/test_tfds.py",
    "tests/worker/reporting/test_reports.py",
    "tests/cli/simulator/test_env.py",
    "tests/cli/simulator/test_commands.py",
    "tests/cli/project/test_commands.py",
    "tests/cloud/simulator/test_process.py",
    "tests/testing/",
    "tests/demo/",
)
"""What takes longest, longest first."""
SLOW_FILES = Path(__file__).with_name("slow_files.json")
SLOW: dict[str, float] = json.loads(SLOW_FILES.read_text())
"""Processor seconds of each other file that takes a while: processor_time.py measures them."""
BETWEEN = 4
"""How many other files come after a long one."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which no test is to run: several seconds in each process."""
    file = os.path.relpath(collection_path, ROOT)
    return is_left_out(file, config.getoption("markexpr")) or None


def is_left_out(file: str, marks: str) -> bool:
    """Return whether the expression of `-m` leaves out all tests of a file, given by its path."""
    return "not long" in marks and is_long(file)


def is_long(file: str) -> bool:
    """Return whether `make test-fast` leaves out a file, given by its path."""
    return file.startswith(LONG) or file in SLOW


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long files."""
    for item in items:
        if is_long(file_of(item)):
            item.add_marker("long")


def dealt(files: Iterable[str]) -> Iterator[str]:
    """Yield the long ones of these files with some of the others after each, then the rest, shortest last.

    So no process waits for another at the end; and as most of the long ones compute and most of the others
    wait, they run well side by side.
    """
    chosen = list(files)
    by_time = sorted(chosen, key=lambda file: -SLOW.get(file, 0.0))
    others = (file for file in by_time if not file.startswith(LONG))
    for start in LONG:
        for long in (file for file in chosen if file.startswith(start)):
            yield long
            yield from islice(others, BETWEEN)
    yield from others


def file_of(item: pytest.Item) -> str:
    """Return the path of a test's file in the checkout."""
    return item.nodeid.partition("::")[0]
