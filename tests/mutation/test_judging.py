"""When a mistake counts as caught.

Which tests are run first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.mutation.checkouts import Checkout
from tests.mutation.judging import judge, judge_together, run_suite
from tests.mutation.mutants import Mutant
from tests.mutation.programs import CpuClock
from tests.mutation.ranking import ranked
from tests.paths import ROOT

pytestmark = pytest.mark.slow

MODULE = "def larger(a, b):\n    return a < b\n"
MISTAKE = Mutant("module.py", 2, 13, 14, ">")
TESTS = {
    "blind": "def test_blind():\n    larger(1, 2)\n",
    "good": "def test_good():\n    assert larger(1, 2)\n",
    "broken": "def test_broken():\n    assert not larger(1, 2) and larger(1, 2)\n",
    "ordered": "def test_first():\n    pass\n\ndef test_good():\n    assert larger(1, 2)\n",
    "waiting": (
        "import threading\n\ndef test_waits():\n"
        "    if not larger(1, 2):\n        print('waits', flush=True)\n        threading.Event().wait()\n"
    ),
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A module with tests of several kinds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts in half the time
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout,tests.ordering.processes")
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    for name, text in TESTS.items():
        (tmp_path / "tests" / f"test_{name}.py").write_text(f"from module import larger\n\n{text}")
    return Checkout(tmp_path, Path(sys.executable))


def test_a_mistake_is_caught_by_the_first_test_that_fails_with_it_only(checkout: Checkout) -> None:
    tests = ["tests/test_blind.py", "tests/test_broken.py", "tests/test_good.py"]
    outcome = judge(MISTAKE, tests, checkout, CpuClock(600))
    assert outcome.caught_by == "tests/test_good.py::test_good"
    assert outcome.unreliable == ("tests/test_broken.py::test_broken",)
    assert outcome.files == tuple(tests)
    assert (checkout.folder / "module.py").read_text() == MODULE


def test_a_mistake_that_no_test_fails_with_survives(checkout: Checkout) -> None:
    outcome = judge(MISTAKE, ["tests/test_blind.py"], checkout, CpuClock(600))
    assert (outcome.caught_by, outcome.unreliable, outcome.files) == ("", (), ("tests/test_blind.py",))


def test_a_mistake_over_the_budget_survives(checkout: Checkout) -> None:
    outcome = judge(MISTAKE, ["tests/test_good.py"], checkout, CpuClock(0.0))
    assert (outcome.caught_by, outcome.files) == ("", ())


def test_a_test_that_stands_still_with_the_mistake_only_catches_it(checkout: Checkout) -> None:
    outcome = judge(MISTAKE, ["tests/test_waiting.py"], checkout, CpuClock(600, standstill=3))
    assert outcome.caught_by == "tests/test_waiting.py::test_waits"


def test_what_near_tests_do_not_see_meets_the_whole_suite(tmp_path: Path, checkout: Checkout) -> None:
    (tmp_path / "module.py").write_text(MODULE + "\n\ndef half(a):\n    return a / 2\n")
    unseen = Mutant("module.py", 6, 13, 14, "*")
    (tmp_path / "tests" / "test_waiting.py").unlink()
    seen, other = judge_together([MISTAKE, unseen], checkout, 2, CpuClock(0.0))
    assert seen.mutant == MISTAKE
    assert seen.caught_by in {"tests/test_good.py::test_good", "tests/test_ordered.py::test_good"}
    assert seen.unreliable == (), "test_broken fails without the mistake"
    assert (other.mutant, other.caught_by) == (unseen, "")
    assert "return a / 2" in (tmp_path / "module.py").read_text()


def test_mistakes_of_one_line_are_planted_together_and_taken_out_again(
    tmp_path: Path, checkout: Checkout
) -> None:
    with checkout.planted(MISTAKE, Mutant("module.py", 2, 15, 16, "b * 10")):
        assert (tmp_path / "module.py").read_text() == "def larger(a, b):\n    return a > b * 10\n"
    assert (tmp_path / "module.py").read_text() == MODULE


def test_a_suite_that_does_not_come_to_its_end_is_an_error(checkout: Checkout) -> None:
    with pytest.raises(RuntimeError, match="pytest ended with None"):
        run_suite(checkout, 2, CpuClock(0.0))
    (checkout.folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        run_suite(checkout, 2, CpuClock(600))


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
