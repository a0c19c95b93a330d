"""The real terraform with the stand-in for Google's providers; tests are skipped without terraform."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.terraform import stand_in
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.workbench import Workbench

OLDEST = (1, 9)
"""As in terraform/versions.tf."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that run terraform if it is missing or too old."""
    running = [item for item in items if "make_workbench" in getattr(item, "fixturenames", ())]
    reason = missing() if running else ""
    for item in running:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def missing() -> str:
    """Return why the real terraform cannot be used, or an empty string."""
    rest = "the tests that need it are skipped, the others of tests/terraform run"
    program = shutil.which("terraform")
    if program is None:
        return f"terraform is not on the PATH: {rest}"
    result = subprocess.run(
        [program, "version", "-json"], capture_output=True, text=True, check=True, timeout=60
    )
    version = json.loads(result.stdout)["terraform_version"]
    if tuple(map(int, version.split("-")[0].split(".")[:2])) < OLDEST:
        return f"terraform {version} on the PATH is older than {'.'.join(map(str, OLDEST))}: {rest}"
    return ""


@pytest.fixture(scope="session")
def make_workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Workbench]]:
    """A function that returns a workbench with one version of the providers, which may foresee values."""
    workbenches: dict[tuple[str, bool], Workbench] = {}
    with ExitStack() as stack:

        def make(version: str, foresees: bool = False) -> Workbench:
            key = (version, foresees)
            if key not in workbenches:
                environment = stack.enter_context(stand_in.running(version, foresees))
                workbenches[key] = Workbench(tmp_path_factory.mktemp("workbench"), environment)
                workbenches[key].install()
            return workbenches[key]

        yield make


@pytest.fixture(scope="session")
def workbench(make_workbench: Callable[..., Workbench]) -> Workbench:
    """A workbench with the newest providers."""
    return make_workbench(VERSIONS[-1])
