"""Which tests are run first."""

from __future__ import annotations

import pytest

from tests.mutation.ranking import ranked
from tests.paths import ROOT

pytestmark = pytest.mark.slow


def test_every_module_has_tests_that_can_see_it() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tpuctl").rglob("*.py")]
    assert [module for module in modules if not ranked(module, 1)] == []


def test_the_own_tests_of_a_module_come_first() -> None:
    assert ranked("tpuctl/clock.py", 1)[0] == "tests/test_clock.py"


def test_tests_that_import_the_module_come_next_and_those_that_take_long_last() -> None:
    tests = ranked("tpuctl/sim/world/state.py", 1)
    order = ["sim/world/test_plain_parts.py", "sim/tpu/queue/test_queue.py", "sim/tpu/clients/test_gcloud.py"]
    assert sorted(order, key=lambda name: tests.index(f"tests/{name}")) == order


def test_tests_that_have_the_words_of_the_function_come_sooner() -> None:
    module = "tpuctl/sim/world/queue.py"
    source = (ROOT / module).read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "Code.CANCELLED" in text)
    without, place = (ranked(module, at).index("tests/sim/tpu/queue/test_timeline.py") for at in (1, line))
    assert place < without


def test_where_a_package_has_no_folder_of_tests_those_of_the_nearest_above_it_come_first() -> None:
    tests = ranked("tpuctl/sim/guest/_tpuctl_tpu/strategy.py", 1)
    guest = [test for test in tests if test.startswith("tests/sim/guest/")]
    assert tests[: len(guest)] == guest
