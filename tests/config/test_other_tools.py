"""What gcloud's own configuration and the credentials of its clients say: project, zone and account.

Outputs of Terraform as settings: both forms, and what is not one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.paths import RECORDED_OUTPUT as RECORDED
from tpuctl.config.layers import credentials_account, gcloud_settings
from tpuctl.config.terraform_output import settings
from tpuctl.errors import ConfigError

IMPERSONATION = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{}:generateAccessToken"
CONFIGURATION = "[core]\nproject = lab\naccount = ada@lab.org\n[compute]\nzone = us-east1-d\n"


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    """gcloud's folder, whose default configuration has each property."""
    (tmp_path / "sdk/configurations").mkdir(parents=True)
    (tmp_path / "sdk/configurations/config_default").write_text(CONFIGURATION)
    return tmp_path / "sdk"


def test_each_property_has_its_setting(sdk: Path) -> None:
    values, origins = gcloud_settings({"CLOUDSDK_CONFIG": str(sdk)})
    assert values == {"project": "lab", "owner": "ada@lab.org", "zone": "us-east1-d"}
    assert set(origins.values()) == {f"gcloud ({sdk / 'configurations/config_default'})"}


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("GOOGLE_CLOUD_PROJECT", "project"),
        ("CLOUDSDK_CORE_PROJECT", "project"),
        ("CLOUDSDK_CORE_ACCOUNT", "owner"),
        ("CLOUDSDK_COMPUTE_ZONE", "zone"),
    ],
)
def test_a_variable_of_gcloud_wins_over_its_file(sdk: Path, variable: str, setting: str) -> None:
    values, origins = gcloud_settings({"CLOUDSDK_CONFIG": str(sdk), variable: "other"})
    assert (values[setting], origins[setting]) == ("other", variable)
    assert list(values.values()).count("other") == 1
    assert gcloud_settings({"CLOUDSDK_CONFIG": str(sdk), variable: ""})[0][setting] != ""


def test_the_variable_of_all_clients_wins_over_gclouds_own() -> None:
    variables = {"CLOUDSDK_CORE_PROJECT": "second", "GOOGLE_CLOUD_PROJECT": "first", "HOME": "/nowhere"}
    assert gcloud_settings(variables)[0] == {"project": "first"}


@pytest.mark.parametrize(
    ("active", "named", "project"),
    [
        (None, None, "lab"),
        ("", None, "lab"),
        ("work\n", None, "of work"),
        (None, "work", "of work"),
        ("work", "default", "lab"),
        ("work", "", "of work"),
        ("missing", None, None),
    ],
)
def test_the_configuration_is_that_of_the_variable_else_the_active_one(
    sdk: Path, active: str | None, named: str | None, project: str | None
) -> None:
    (sdk / "configurations/config_work").write_text("[core]\nproject = of work\n")
    if active is not None:
        (sdk / "active_config").write_text(active)
    variables = {"CLOUDSDK_CONFIG": str(sdk)}
    if named is not None:
        variables["CLOUDSDK_ACTIVE_CONFIG_NAME"] = named
    assert gcloud_settings(variables)[0].get("project") == project


def test_without_a_variable_the_folder_is_in_the_home(sdk: Path, tmp_path: Path) -> None:
    (tmp_path / "home/.config").mkdir(parents=True)
    sdk.rename(tmp_path / "home/.config/gcloud")
    for variables in ({}, {"CLOUDSDK_CONFIG": ""}):
        assert gcloud_settings({"HOME": str(tmp_path / "home"), **variables})[0]["project"] == "lab"


@pytest.mark.parametrize(
    ("content", "account"),
    [
        ({"type": "service_account", "client_email": "robot@lab.iam.gserviceaccount.com"},
         "robot@lab.iam.gserviceaccount.com"),
        ({"type": "authorized_user", "account": "ada@lab.org", "client_id": "x"}, "ada@lab.org"),
        ({"type": "authorized_user", "account": "", "client_id": "x"}, ""),
        ({"type": "authorized_user", "client_id": "x@y"}, ""),
        ({"type": "authorized_user", "account": 7}, ""),
        ({"type": "authorized_user", "account": "ada"}, ""),
        ({"type": "authorized_user", "account": ["ada@lab.org"]}, ""),
        ({"type": "impersonated_service_account", "account": "ada@lab.org",
          "service_account_impersonation_url": IMPERSONATION.format("robot@lab.iam.gserviceaccount.com")},
         "robot@lab.iam.gserviceaccount.com"),
        ({"type": "external_account", "client_email": "b@c",
          "service_account_impersonation_url": IMPERSONATION.format("no account")}, "b@c"),
        (["ada@lab.org"], ""),
        ("ada@lab.org", ""),
        (None, ""),
    ],
)  # fmt: skip
def test_the_account_of_credentials_is_named_in_each_kind_of_file(
    tmp_path: Path, content: object, account: str
) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(content))
    assert credentials_account({"GOOGLE_APPLICATION_CREDENTIALS": str(file), "HOME": "/nowhere"}) == account


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"client_email": "a@b"', b"[" * 100_000])
def test_credentials_that_cannot_be_read_name_nobody(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "key.json").write_bytes(data)
    for name in ("key.json", "missing.json", "."):
        assert credentials_account({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / name)}) == ""


def test_the_credentials_of_gcloud_count_unless_others_are_named(sdk: Path, tmp_path: Path) -> None:
    (sdk / "application_default_credentials.json").write_text(json.dumps({"account": "ada@lab.org"}))
    (tmp_path / "key.json").write_text(json.dumps({"client_email": "robot@lab.org"}))
    variables = {"CLOUDSDK_CONFIG": str(sdk), "GOOGLE_APPLICATION_CREDENTIALS": ""}
    assert credentials_account(variables) == "ada@lab.org"
    variables["GOOGLE_APPLICATION_CREDENTIALS"] = str(tmp_path / "key.json")
    assert credentials_account(variables) == "robot@lab.org"


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
