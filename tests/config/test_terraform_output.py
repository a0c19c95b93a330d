"""Outputs of Terraform as settings: both forms, and what is not one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.paths import RECORDED_OUTPUT as RECORDED
from tpuctl.config.terraform_output import settings
from tpuctl.errors import ConfigError

"""What the real terraform printed; tests/terraform compares it where terraform is at hand."""
SETTINGS = {
    "project": "demo-project-1",
    "zone": "us-central2-b",
    "bucket": "demo-project-1-models",
    "data_bucket": "demo-project-1-pictures",
    "network": "vision-team",
    "subnetwork": "vision-team-us-central2",
    "subnetworks": "us-central1=vision-team-us-central1,us-central2=vision-team-us-central2",
    "service_account": "vision-team-tpu@demo-project-1.iam.gserviceaccount.com",
    "external_ips": "no",
    "iap": "yes",
}


def bare(**changes: Any) -> dict[str, Any]:
    value = json.loads(RECORDED.read_text())["tpuctl"]["value"] | changes
    return {name: field for name, field in value.items() if field is not ...}


def read(content: object) -> dict[str, str]:
    return settings(json.dumps(content).encode(), "FILE")


def test_both_forms_give_the_same_settings() -> None:
    assert settings(RECORDED.read_bytes(), "FILE") == SETTINGS
    assert read(bare()) == SETTINGS


def test_other_outputs_and_later_fields_do_not_matter() -> None:
    other = {"address": {"value": "10.0.0.1", "type": "string", "sensitive": False}}
    assert read(other | {"tpuctl": {"value": bare(later=1)}}) == SETTINGS


def test_external_addresses_are_a_yes() -> None:
    settings = read(bare(external_ips=True))
    assert settings["external_ips"] == "yes"
    assert "iap" not in settings


@pytest.mark.parametrize(
    "content", [{}, {"base": {"value": {}}}, {"tpuctl": {"value": "text"}}, {"project": "p"}]
)
def test_without_the_output_it_says_what_to_do(content: object) -> None:
    with pytest.raises(ConfigError, match="FILE has no output 'tpuctl'") as refused:
        read(content)
    assert "terraform apply" in refused.value.hint
    assert 'output "tpuctl"' in refused.value.hint


@pytest.mark.parametrize("schema", [2, "1", None])
def test_another_schema_is_refused(schema: object) -> None:
    with pytest.raises(ConfigError, match=f"has schema {schema}; this tpuctl"):
        read(bare(schema=schema))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"zone": ...}, "zone"),
        ({"zone": 3}, "zone"),
        ({"zone": None}, "zone"),
        ({"zone": "europe-west4"}, "europe-west4"),
        ({"buckets": {"data": "gs://my-data"}}, "runs"),
        ({"buckets": {"data": "gs://my-data", "runs": "gs://My Runs"}}, "My Runs"),
        ({"external_ips": "no"}, "external_ips"),
        ({"service_account": "default"}, "service account"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match="not as terraform/outputs") as refused:
        read(bare(**change))
    assert named in refused.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"tpuctl"', b"\xff\xfe", b"No outputs found"])
def test_what_is_no_output_says_how_to_get_one(data: bytes) -> None:
    with pytest.raises(ConfigError, match="FILE is not what 'terraform output -json' prints") as refused:
        settings(data, "FILE")
    assert "terraform output -json > FILE" in refused.value.hint


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"region": "europe-west4"}, "zone us-central2-b is not in region europe-west4"),
        ({"buckets": {"data": "gs://mine", "runs": "gs://mine"}}, "gs://mine is the bucket of datasets and"),
        (
            {"subnetworks": {"us-central2": "other", "us-central1": "vision-team-us-central2"}},
            "subnetwork vision-team-us-central2 is not in us-central2, the region of us-central2-b",
        ),
        ({"subnetworks": {"us-central1": "vision-team-us-central2"}}, "is not in us-central2"),
    ],
)
def test_an_output_that_contradicts_itself_is_a_sentence(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match="contradicts itself") as refused:
        read(bare(**change))
    assert problem in refused.value.message
    assert "terraform apply" in refused.value.hint


def test_an_output_of_an_earlier_version_has_one_region() -> None:
    assert read(bare(subnetworks=...))["subnetworks"] == "us-central2=vision-team-us-central2"
    assert "subnetworks" not in read(bare(subnetworks=..., region=...))


def test_a_byte_order_mark_is_skipped_and_utf_16_is_a_sentence() -> None:
    assert settings(b"\xef\xbb\xbf" + RECORDED.read_bytes(), "FILE") == SETTINGS
    with pytest.raises(ConfigError, match="FILE is UTF-16, as PowerShell's > writes it") as refused:
        settings(RECORDED.read_text().encode("utf-16"), "FILE")
    assert "Out-File -Encoding utf8" in refused.value.hint
