"""All planted mistakes."""

# ruff: noqa: E501  a table

from __future__ import annotations

from tests.terraform.mistakes.additions import ADDITIONS
from tests.terraform.mistakes.changes import CHANGES
from tests.terraform.mistakes.mistake import Mistake
from tests.terraform.mistakes.policy import POLICY
from tests.terraform.mistakes.wording import (
    ALLOWED_VALUES,
    LAYOUT,
    NAMES,
    PROVIDER_RULES,
    REFERENCES,
    SCHEMA,
    TYPES,
)

WORDING = [*LAYOUT, *SCHEMA, *TYPES, *REFERENCES, *ALLOWED_VALUES, *PROVIDER_RULES, *NAMES]
MISTAKES = [*WORDING, *POLICY, *ADDITIONS, *CHANGES]

SAMPLE = [
    "columns that do not line up", "a misspelled argument", "an argument that provider 7 removed",
    "a resource instead of its id", "an output that the module lacks", "a misspelled public_access_prevention",
    "allow and deny in one rule", "SSH from everywhere", "a rule for everybody", "datasets for everybody",
    "TPU VMs that read all buckets", "a bucket as it comes", "an account that is disabled",
]  # fmt: skip
"""One mistake of each kind, for every run of the tests; the others take minutes."""

UNCAUGHT = [
    Mistake("a slice beyond the quota", "examples/complete/main.tf", '"v4-8"', '"v4-4096"', "", ""),
    Mistake("a bucket name that somebody else owns", "examples/complete/main.tf", '"${var.project_id}-models"', '"models"', "", ""),
    Mistake("a currency that is not the account's", "examples/complete/main.tf", '"EUR"', '"XAF"', "", ""),
]  # fmt: skip
"""The record shows these as differences, and no check knows them to be wrong: only Google does. terraform/README.md lists them."""
