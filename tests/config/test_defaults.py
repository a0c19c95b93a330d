"""What settings are that no layer sets."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest

from tpuctl.config.layers import default_value
from tpuctl.config.settings import SETTINGS, Value


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
