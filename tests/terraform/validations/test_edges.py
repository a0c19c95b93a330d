"""Each variable of the module takes and refuses values exactly where the table of edges says."""

from __future__ import annotations

from tests.terraform.plans import record
from tests.terraform.validations import edges, judged
from tests.terraform.workbench import Workbench


def test_every_value_is_judged_as_the_table_says(workbench: Workbench) -> None:
    problems = judged.problems(workbench)
    assert not problems, "\n".join(problems)


def test_a_rule_that_is_too_wide_too_narrow_or_says_something_else_is_found(workbench: Workbench) -> None:
    with (
        workbench.changed("variables.tf", "var.mtu >= 1300", "var.mtu >= 1299"),
        workbench.changed("variables.tf", "var.soft_delete_days <= 90", "var.soft_delete_days < 90"),
        workbench.changed("variables.tf", '"zone must be in region', '"No'),
    ):
        problems = judged.problems(workbench)
    assert "mtu = 1299 is accepted" in problems
    assert [
        text for text in problems if text.startswith("soft_delete_days = 90 is refused: soft_delete_days is")
    ]
    assert [text for text in problems if text.startswith('zone = "" is refused for another reason: No')]
    assert {text.split()[0] for text in problems} == {"mtu", "soft_delete_days", "zone"}


def test_a_default_that_its_own_rule_refuses_is_found(workbench: Workbench) -> None:
    with workbench.changed("variables.tf", "var.mtu <= 8896", "var.mtu < 8896"):
        assert "mtu is 1300 to 8896" in " ".join(judged.problems(workbench))


def test_the_table_has_every_variable() -> None:
    """A variable without a rule has the edges of its type."""
    inputs = {name.split()[1] for name in record.of_files("module") if name.startswith("variable ")}
    assert inputs == edges.ACCEPTED.keys() | edges.REFUSED.keys()
    assert inputs - edges.REFUSED.keys() == set()
