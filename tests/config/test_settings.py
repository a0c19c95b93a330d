"""Settings: the formats of values, what holds without any, and the table [prices]."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import accelerators
from tpuctl.catalogue.prices import OwnPrice
from tpuctl.config import load
from tpuctl.config.files import user_file
from tpuctl.config.layers import default_value
from tpuctl.config.settings import FORMATS, SETTINGS, Value, normalize
from tpuctl.errors import ConfigError, UsageError

RIGHT = [
    ("project", "my-project", "my-project"),
    ("project", "example.com:my-project", "example.com:my-project"),
    ("zone", "europe-west4-a", "europe-west4-a"),
    ("zone", "northamerica-northeast2-c", "northamerica-northeast2-c"),
    ("zone", " us-central2-b\n", "us-central2-b"),
    ("zone", "us-south1-ai1b", "us-south1-ai1b"),
    ("bucket", "my_bucket-1", "my_bucket-1"),
    ("bucket", "gs://my-bucket/", "my-bucket"),
    ("bucket", "data.example.com", "data.example.com"),
    ("data_bucket", "gs://my-data", "my-data"),
    ("network", "default", "default"),
    *((setting, name, name) for setting, name in (
        ("network", "projects/host-project/global/networks/shared"),
        ("subnetwork", "projects/host-project/regions/us-east1/subnetworks/a"),
        ("service_account", "tpu@my-project.iam.gserviceaccount.com"),
        ("service_account", "123-compute@developer.gserviceaccount.com"),
        ("external_ips", "no"),
        ("iap", "yes"),
        ("host_keys", "first-contact"),
    )),
]  # fmt: skip
WRONG = [
    *(("project", name) for name in ("123456789012", "My project", "abc", "my-project-", "")),
    *(("zone", name) for name in ("EU", "europe-west4-a/", "europe-west4-ab", "us-south1-ai1")),
    *(("bucket", name) for name in ("My-Bucket", "ab", "-data", "a" * 64, "s3://my-bucket")),
    *(("bucket", name) for name in ("google-data", "my-google-data", "goog-data", "192.168.5.4")),
    *(("network", name) for name in ("my_network", "global/networks/a", "a" * 64)),
    *(("service_account", name) for name in ("tpu", "serviceAccount:tpu@my-project.iam.gserviceaccount.com")),
    ("external_ips", "maybe"), ("iap", "auto"),
    *(("ssh_user", name) for name in ("ada lovelace", "Ada", "ada:x", "-ada", "a" * 33)),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "typed", "value"), RIGHT)
def test_a_right_name_is_kept(setting: str, typed: str, value: str) -> None:
    assert normalize(setting, typed) == value


@pytest.mark.parametrize(("setting", "typed"), WRONG)
def test_a_wrong_name_is_refused_with_what_it_should_be(setting: str, typed: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be the {setting.replace('_', ' ')}") as refused:
        normalize(setting, typed)
    assert refused.value.hint == f"It is {FORMATS[setting].description}."


def test_a_region_as_zone_is_refused_with_the_zones_it_has() -> None:
    with pytest.raises(UsageError, match="'europe-west4' cannot be the zone: it is a region") as refused:
        normalize("zone", "europe-west4")
    assert refused.value.hint == "Its zones with TPUs: europe-west4-a, europe-west4-b."


def test_a_region_without_tpus_is_refused_as_such() -> None:
    with pytest.raises(UsageError, match="it is a region") as refused:
        normalize("zone", "us-west2")
    assert refused.value.hint == "No TPUs are known in us-west2."


@pytest.mark.parametrize("value", ["gs://my-bucket/sub/", "my-bucket/sub", "gs://my-bucket//"])
def test_a_folder_as_bucket_is_refused_with_the_bucket_alone(value: str) -> None:
    with pytest.raises(UsageError, match="cannot be the bucket: it is a folder in a bucket") as refused:
        normalize("bucket", value)
    assert refused.value.hint == "Name the bucket alone: my-bucket"


def test_every_zone_of_the_catalogue_can_be_configured() -> None:
    assert [zone for zone in accelerators.zones() if normalize("zone", zone) != zone] == []


def test_every_form_is_that_of_a_setting() -> None:
    assert set(FORMATS) <= set(SETTINGS)


@pytest.mark.parametrize(
    ("written", "value"), [("true", "yes"), ("True", "yes"), ("1", "yes"), ("false", "no"), ("0", "no")]
)
@pytest.mark.parametrize("setting", ["external_ips", "iap"])
def test_yes_and_no_may_be_written_as_toml_and_the_environment_do(
    setting: str, written: str, value: str
) -> None:
    assert normalize(setting, written) == value


def default(name: str, *, sim: bool = False, **environ: str) -> Value:
    return default_value(SETTINGS[name], sim=sim, environ=environ)


def without_a_user() -> str:
    raise KeyError("getpwuid(): uid not found: 4711")


@pytest.mark.parametrize(
    ("user", "login"),
    [
        ("ada", "ada"),
        ("Ada.Lovelace Byron", "ada_lovelace_byron"),
        ("a-b_9", "a-b_9"),
        ("x" * 40, "x" * 32),
        ("Ä@lab", "__lab"),
    ],
)
def test_the_login_is_a_name_that_linux_accepts(
    monkeypatch: pytest.MonkeyPatch, user: str, login: str
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: user)
    assert default("ssh_user") == Value(login, "default: your user name")


def test_who_has_no_name_logs_in_as_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", without_a_user)
    monkeypatch.setattr(platform, "node", lambda: "box")
    assert default("ssh_user").value == "tpu"
    assert default("owner", HOME="/nowhere").value == "tpu@box"


def test_the_owner_is_the_account_of_the_credentials_else_this_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "Ada B")
    monkeypatch.setattr(platform, "node", lambda: "box#1.lab")
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"client_email": "robot@lab.org"}))
    here = "default: your user name on this machine"
    named = {"GOOGLE_APPLICATION_CREDENTIALS": str(key)}
    assert default("owner", **named) == Value("robot@lab.org", "default: the account of the credentials")
    assert default("owner", sim=True, **named) == Value("Ada_B@box_1.lab", here)
    assert default("owner", HOME="/nowhere") == Value("Ada_B@box_1.lab", here)
    assert default("owner", HOME="/nowhere", TPUCTL_SSH_USER="al+p") == Value("al_p@box_1.lab", here)


def test_the_key_is_gclouds_when_it_has_one(tmp_path: Path) -> None:
    made = Value(str(tmp_path / "state/ssh/id_ed25519"), "default: made when first needed")
    variables = {"HOME": str(tmp_path), "TPUCTL_STATE": str(tmp_path / "state")}
    (tmp_path / ".ssh/google_compute_engine").mkdir(parents=True)
    assert default("ssh_key", **variables) == made, "a folder is no key"
    (tmp_path / ".ssh/google_compute_engine").rmdir()
    (tmp_path / ".ssh/google_compute_engine").touch()
    assert default("ssh_key", **variables) == Value(
        str(tmp_path / ".ssh/google_compute_engine"), "default: the key gcloud uses"
    )


def test_other_settings_have_a_default_on_the_simulator_and_maybe_on_google_cloud() -> None:
    assert default("zone", sim=True).origin == "default of the simulator"
    assert default("zone") == Value(None, "not set")
    assert default("network").origin == "default"


def write(text: str) -> str:
    Path("tpuctl.toml").write_text(text)
    return str(Path("tpuctl.toml").resolve())


def test_rows_are_prices_of_slices_and_chips(home: Path) -> None:
    path = write(
        'zone = "us-east1-d"\n'
        "[prices]\n"
        'currency = "EUR"\n'
        "v3-8 = 7.5\n"
        "v5e = { on_demand = 1.1, spot = 0 }\n"
        '"v5litepod-8@europe-west4-b" = { spot = 2 }\n'
    )
    config = load({})
    assert config.get("zone") == "us-east1-d"
    assert config.prices == (
        OwnPrice("v3-8", "", Decimal("7.5"), None, "EUR", f"{path}, line 4"),
        OwnPrice("v5e", "", Decimal("1.1"), Decimal(0), "EUR", f"{path}, line 5"),
        OwnPrice("v5litepod-8", "europe-west4-b", None, Decimal(2), "EUR", f"{path}, line 6"),
    )


def test_the_projects_rows_come_before_the_users_own(home: Path) -> None:
    write("[prices]\nv3-8 = 1\n")
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[prices]\nv3-8 = 2\nv2-8 = 3\n")
    assert [(row.name, row.on_demand) for row in load({}).prices] == [("v3-8", 1), ("v3-8", 2), ("v2-8", 3)]


def test_without_the_table_there_are_no_rows(home: Path) -> None:
    write("")
    assert load({}).prices == ()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("prices = 1", "line 1: 'prices' has to be a table", "[prices]"),
        ("[prices]\nv3-8 = '1'", "line 2: the price of v3-8 has to be a number", "v3-8 = 1.5"),
        ("[prices]\nv3-8 = -1", "line 2: the price of v3-8 has to be a number, 0 or more", ""),
        ("[prices]\nv3-8 = true", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = nan", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = inf", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = 1e300", "line 2: the price of v3-8 has to be a number", ""),
        ("[prices]\nv3-8 = { hourly = 1 }", "line 2: the price of v3-8 has no term 'hourly'", "on_demand"),
        ("[prices]\nv3-8 = {}", "line 2: the price of v3-8 has no term", "on_demand"),
        ("[prices]\n'v3-8@moon' = 1", "line 2: 'moon' is not a region or zone", "europe-west4"),
        ("[prices]\n'v3-8@' = 1", "line 2: '' is not a region or zone", ""),
        ("[prices]\nv3-9 = 1", "line 2: there is no accelerator type or generation 'v3-9'", "v3-8"),
        ("[prices]\nv7e = 1", "line 2: there is no accelerator type or generation 'v7e'", "Did you mean"),
        ("[prices]\ncurrency = 'eur'", "line 2: the currency of [prices] has to be a code", "EUR"),
        ("[prices]\ncurrency = 1", "line 2: the currency of [prices] has to be a code", "EUR"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(home: Path, text: str, message: str, hint: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as refused:
        load({})
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_up_shows_a_price_of_the_file_and_says_that_it_is_from_there(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult]
) -> None:
    path = write("[prices]\ncurrency = 'CHF'\nv3 = { on_demand = 2, spot = 0.5 }\n")
    assert f"8.00 CHF ({path}, line 3)" in tpuctl("up", "v3-8").err
    assert f"2.00 CHF ({path}, line 3)" in tpuctl("up", "v3-8", "--spot").err
    assert simulator.events.find(service="billing") == []
