"""Each variable of the module takes and refuses values exactly where the table of edges says."""

from __future__ import annotations

import pytest

from tests.terraform.plans import record
from tests.terraform.validations import edges, judged
from tests.terraform.workbench import Workbench

pytestmark = pytest.mark.slow


def test_every_value_is_judged_as_the_table_says(workbench: Workbench) -> None:
    problems = judged.problems(workbench)
    assert not problems, "\n".join(problems)


def test_the_table_has_every_variable() -> None:
    """A variable without a rule has the edges of its type."""
    inputs = {name.split()[1] for name in record.of_files("module") if name.startswith("variable ")}
    assert inputs == edges.ACCEPTED.keys() | edges.REFUSED.keys()
    assert inputs - edges.REFUSED.keys() == set()
