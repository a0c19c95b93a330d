"""Terraform's outputs: read from a folder or a file, and compared with the configuration.

Folders in which this user had terraform run are remembered, each once, for nobody else to read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.paths import RECORDED_OUTPUT
from tpuctl.config import Config, load
from tpuctl.errors import ConfigError, DeadlineError, UsageError
from tpuctl.flows.project import terraform
from tpuctl.flows.project.doctor import allow, is_allowed

SETTINGS = {"project": "my-project", "zone": "us-central2-b", "bucket": "my-bucket"}


@pytest.fixture
def base(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where Terraform was applied, and the folder of `terraform` alone on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "base").mkdir()
    return tmp_path / "base"


def install(base: Path, script: str, mode: int = 0o755) -> None:
    """Put a program in the place of terraform."""
    program = base.parent / "bin/terraform"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(mode)


def test_a_folder_is_read_by_terraform_there_without_questions(base: Path) -> None:
    install(
        base,
        'echo "$PWD $TF_IN_AUTOMATION $TF_INPUT $*" > call; /bin/cat >> call; '
        f"/bin/cat {RECORDED_OUTPUT}; echo warning >&2",
    )
    assert terraform.read(base) == terraform.read(RECORDED_OUTPUT)
    assert (base / "call").read_text() == f"{base} 1 0 output -json -no-color\n"


def test_a_file_needs_no_terraform(base: Path) -> None:
    assert terraform.read(RECORDED_OUTPUT)["zone"] == "us-central2-b"


def test_a_file_that_is_not_there_is_named(base: Path) -> None:
    with pytest.raises(UsageError, match="nowhere cannot be read: No such file") as missing:
        terraform.read(Path("nowhere"))
    assert "terraform output -json" in missing.value.hint


def test_without_terraform_the_hint_is_a_file(base: Path) -> None:
    with pytest.raises(ConfigError, match="terraform is not on the PATH") as missing:
        terraform.read(base)
    assert "terraform output -json > outputs.json" in missing.value.hint


def test_a_terraform_that_fails_is_quoted_on_one_line(base: Path) -> None:
    install(base, "printf '│ Error: Backend\\n│ initialization required\\n' >&2; exit 1")
    with pytest.raises(ConfigError) as failed:
        terraform.read(base)
    assert failed.value.message == (
        f"'terraform output' failed in {base}: Error: Backend initialization required"
    )


def test_a_program_that_cannot_be_run_is_named(base: Path) -> None:
    program = base.parent / "bin/terraform"
    program.write_text("#!/no/such/shell\n")
    program.chmod(0o755)
    with pytest.raises(ConfigError, match=rf"{program} cannot be run in {base}: No such file"):
        terraform.read(base)


def test_terraform_is_given_two_minutes(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert terraform.TIMEOUT == 120.0, "it may fetch the state from a bucket"
    monkeypatch.setattr(terraform, "TIMEOUT", 0.2)
    install(base, "exec /bin/sleep 600")
    with pytest.raises(DeadlineError, match=f"'terraform output' in {base} did not answer in 0 s") as late:
        terraform.read(base)
    assert late.value.hint == "Run it there by hand."


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, []),
        ({"zone": "us-central2-c"}, []),  # another zone of the same region
        ({"zone": "us-east1-d"}, ["zone is us-central2-b (--zone), Terraform made us-east1-d"]),
        ({"bucket": "other"}, ["bucket is my-bucket (--bucket), Terraform made other"]),
        (
            {"bucket": "other", "project": "another"},
            [
                "project is my-project (--project), Terraform made another",
                "bucket is my-bucket (--bucket), Terraform made other",
            ],
        ),
    ],
)
def test_each_setting_that_differs_is_one_sentence(
    base: Path, changes: dict[str, str], differences: list[str]
) -> None:
    config = load({"target": "gcp", **SETTINGS})
    assert terraform.differences(config, {**SETTINGS, **changes}) == differences


def test_a_setting_that_is_missing_differs(base: Path) -> None:
    assert len(terraform.differences(load({"target": "gcp"}), {"zone": "us-east1-d"})) == 1


class TestForeignFolders:
    """terraform reads backends and plug-ins of its folder, which can run programs."""

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
    @pytest.mark.parametrize("place", ["", ".terraform"])
    def test_a_folder_of_another_user_is_refused_and_nothing_runs(self, base: Path, place: str) -> None:
        install(base, "echo > ran")
        (base / ".terraform").mkdir()
        os.chown(base / place, 65534, 65534)
        with pytest.raises(ConfigError, match=rf"^{base / place} belongs to the user") as refused:
            terraform.read(base)
        assert "terraform output -json > outputs.json" in refused.value.hint
        assert not (base / "ran").exists()

    @pytest.mark.parametrize("place", ["", ".terraform"])
    def test_a_folder_that_everybody_can_write_to_is_refused_also_with_a_sticky_bit(
        self, base: Path, place: str
    ) -> None:
        """There everybody can add a file."""
        install(base, "echo > ran")
        (base / ".terraform").mkdir()
        (base / place).chmod(0o1777)
        with pytest.raises(ConfigError, match=rf"^Every user of this machine can write to {base / place}"):
            terraform.read(base)
        assert not (base / "ran").exists()

    def test_variables_that_change_the_command_are_not_passed_on(
        self, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("TF_CLI_ARGS", "TF_CLI_ARGS_output", "TF_LOG", "TF_LOG_PATH", "TF_REATTACH_PROVIDERS"):
            monkeypatch.setenv(name, "hostile")
        for name in ("TF_WORKSPACE", "TF_TOKEN_app_terraform_io", "TF_DATA_DIR", "GOOGLE_CREDENTIALS"):
            monkeypatch.setenv(name, "mine")
        install(base, f"/usr/bin/env > variables; /bin/cat {RECORDED_OUTPUT}")
        terraform.read(base)
        lines = (base / "variables").read_text().splitlines()
        assert "hostile" not in "".join(lines)
        assert {"TF_WORKSPACE=mine", "TF_TOKEN_app_terraform_io=mine", "TF_DATA_DIR=mine"} <= set(lines)
        assert "GOOGLE_CREDENTIALS=mine" in lines

    def test_the_folders_own_program_is_not_run(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f".:bin:{os.pathsep}")
        monkeypatch.chdir(base)
        (base / "terraform").write_text("#!/bin/sh\necho > ran\n")
        (base / "terraform").chmod(0o755)
        with pytest.raises(ConfigError, match="terraform is not on the PATH"):
            terraform.read(base)
        assert not (base / "ran").exists()

    def test_a_folder_whose_name_is_an_option_stays_a_folder(self, base: Path) -> None:
        folder = base / "-chdir=elsewhere"
        folder.mkdir()
        install(base, f'echo "$*" > call; /bin/cat {RECORDED_OUTPUT}')
        terraform.read(folder)
        assert (folder / "call").read_text() == "output -json -no-color\n"


def test_an_endless_file_is_refused(base: Path) -> None:
    with pytest.raises(ConfigError, match="/dev/zero is larger than 16 MiB"):
        terraform.read(Path("/dev/zero"))


class TestComparison:
    """What the configuration has, with what Terraform made and what the team's file says."""

    CONFIGURED = MappingProxyType({
        "project": "my-project", "zone": "us-central1-a", "bucket": "my-bucket", "iap": "yes",
    })  # fmt: skip

    @pytest.fixture
    def config(self, home: Path) -> Config:
        return load({**self.CONFIGURED, "target": "gcp"}, {}, home)

    @pytest.mark.parametrize(
        ("outputs", "sentences"),
        [
            ({}, []),
            ({"project": "my-project", "zone": "us-central1-f", "bucket": "my-bucket"}, []),
            ({"iap": "no", "subnetworks": "us-central1=a"}, []),
            ({"bucket": "other"}, ["bucket is my-bucket (--bucket), Terraform made other"]),
            ({"zone": "us-central2-b"}, ["zone is us-central1-a (--zone), Terraform made us-central2-b"]),
            (
                {"project": "p", "bucket": "b"},
                ["project is my-project (--project), Terraform made p",
                 "bucket is my-bucket (--bucket), Terraform made b"],
            ),
        ],
    )  # fmt: skip
    def test_with_outputs_names_each_setting_that_differs(
        self, config: Config, outputs: dict[str, str], sentences: list[str]
    ) -> None:
        assert terraform.differences(config, outputs) == sentences

    @pytest.mark.parametrize(
        ("text", "sentences"),
        [
            ("", []),
            ('project = "my-project"\nzone = "us-central1-f"\nbucket = "gs://my-bucket"', []),
            ('iap = "no"\naccelerator = "v3-8"', []),
            ('zone = "us-central2-b"', ["zone is us-central1-a (--zone), tpuctl.toml has us-central2-b"]),
            ('bucket = "other"', ["bucket is my-bucket (--bucket), tpuctl.toml has other"]),
            ('data_bucket = "data"', ["data_bucket is my-bucket (--bucket), tpuctl.toml has data"]),
            ('service_account = "a@my-project.iam.gserviceaccount.com"',
             ["service_account is None (not set), tpuctl.toml has a@my-project.iam.gserviceaccount.com"]),
            ('network = "lab"', ["network is default (default), tpuctl.toml has lab"]),
            ('external_ips = "no"', ["external_ips is yes (default), tpuctl.toml has no"]),
        ],
    )  # fmt: skip
    def test_with_the_teams_file_names_what_it_has_otherwise_of_terraforms(
        self, config: Config, tmp_path: Path, text: str, sentences: list[str]
    ) -> None:
        (tmp_path / "tpuctl.toml").write_text(text)
        assert terraform.overrides(config, tmp_path / "tpuctl.toml") == sentences

    def test_without_a_file_has_nothing_to_say(self, config: Config, tmp_path: Path) -> None:
        assert terraform.overrides(config, tmp_path / "tpuctl.toml") == []


def test_a_folder_is_remembered_by_its_place(home: Path, tmp_path: Path) -> None:
    for name in ("base", "base 2"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "base")
    assert not is_allowed(tmp_path / "base")
    allow(tmp_path / "link")
    allow(tmp_path / "base")
    assert is_allowed(tmp_path / "base")
    assert is_allowed(tmp_path / "link")
    assert not is_allowed(tmp_path / "base 2")
    assert not is_allowed(tmp_path)
    allow(tmp_path / "base 2")
    file = tmp_path / "state/terraform-folders"
    assert file.read_text() == f"{tmp_path}/base\n{tmp_path}/base 2\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_state_folder_that_cannot_be_is_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigError, match="terraform-folders cannot be written"):
        allow(tmp_path)
    assert not is_allowed(tmp_path)


def test_a_garbled_file_allows_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/terraform-folders").write_bytes(os.fsencode(tmp_path) + b"\n\xff\n")
    assert not is_allowed(tmp_path)
