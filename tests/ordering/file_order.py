"""A pytest plugin: the order in which the processes of pytest-xdist get the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

LONG = (
    "tests/jobs/",
    "tests/sim/guest/test_tutorials.py",
    "tests/sim/guest/findings/test_programs.py",
    "tests/sim/guest/test_keras.py",
    "tests/sim/guest/test_numbers.py",
    "tests/cli/runs/test_digits.py",
    "tests/cli/test_story.py",
    "tests/worker/test_program.py",
    "tests/sim/guest/test_tensorflow.py",
    "tests/sim/tpu/test_state_machine.py",
    "tests/data/test_memory.py",
    "tests/flows/datasets/test_upload.py",
    "tests/sim/tpu/clients/test_gcloud.py",
    "tests/soak/",
)
"""What takes twenty seconds and more, longest first."""
BETWEEN = 4
"""How many other files come after a long one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the long files begin early, so that at the end no process waits for another.

    Most of them compute and most of the others wait: alternating, they go on side by side.
    """
    if hasattr(config, "workerinput"):
        files = dict.fromkeys(map(_file, items))
        places = {file: place for place, file in enumerate(dealt(files))}
        items.sort(key=lambda item: places[_file(item)])


def dealt(files: Iterable[str]) -> Iterator[str]:
    """Yield the long ones of these files with some of the others after each, then the rest."""
    chosen = list(files)
    others = (file for file in chosen if not file.startswith(LONG))
    for start in LONG:
        for long in (file for file in chosen if file.startswith(start)):
            yield long
            yield from islice(others, BETWEEN)
    yield from others


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
