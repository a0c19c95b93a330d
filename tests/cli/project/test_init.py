"""Tests tpuctl init (prompts, options, Terraform's outputs) and tpuctl doctor."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.paths import RECORDED_OUTPUT as RECORDED
from tpuctl.sim.faults import grpc_fault

FLAGS = ("--project", "my-project", "--zone", "europe-west4-a", "--bucket", "my-bucket")


def written() -> dict[str, object]:
    return msgspec.toml.decode(Path("tpuctl.toml").read_bytes(), type=dict[str, object])


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch):
    """Type answers, one a line."""
    return lambda *lines: monkeypatch.setattr(
        sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines))
    )


class TestAsking:
    def test_it_asks_for_what_has_to_be_known_and_suggests_a_bucket(self, tpuctl, answers) -> None:
        answers("my-project", "europe-west4-a", "")
        result = tpuctl("init")
        assert result.code == 0
        assert result.out == ""
        assert "default Compute Engine service account applies, an Editor of older projects" in result.err
        assert 'protection = "records"' in result.err
        assert "Bucket for datasets and runs [my-project-tpuctl]:" in result.err
        assert written() == {"project": "my-project", "zone": "europe-west4-a", "bucket": "my-project-tpuctl"}

    def test_a_link_to_nothing_makes_no_file_elsewhere(self, tpuctl, tmp_path: Path) -> None:
        """A project from elsewhere can bring one along."""
        Path("tpuctl.toml").symlink_to(tmp_path / "elsewhere")
        result = tpuctl("init", *FLAGS)
        assert result.code == 4
        assert "exists already" in result.err
        assert not (tmp_path / "elsewhere").exists()

    def test_a_wrong_answer_is_told_and_asked_again(self, tpuctl, answers) -> None:
        answers("123456789012", "my-project", "europe-west4", "europe-west4-a", "gs://my-bucket/")
        result = tpuctl("init")
        assert "'123456789012' cannot be the project. It is the project's id" in result.err
        assert (
            "'europe-west4' cannot be the zone: it is a region. Its zones with TPUs: europe-west4-a"
            in result.err
        )
        assert written() == {"project": "my-project", "zone": "europe-west4-a", "bucket": "my-bucket"}

    def test_gclouds_own_project_and_zone_are_suggested(self, tpuctl, answers, monkeypatch) -> None:
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "gcloud-project")
        monkeypatch.setenv("CLOUDSDK_COMPUTE_ZONE", "us-east1-d")
        answers("", "", "")
        result = tpuctl("init")
        assert "Google Cloud project [gcloud-project]:" in result.err
        assert written() == {
            "project": "gcloud-project", "zone": "us-east1-d", "bucket": "gcloud-project-tpuctl",
        }  # fmt: skip

    def test_what_options_say_is_not_asked(self, tpuctl, answers) -> None:
        answers("europe-west4-a")
        result = tpuctl("init", "--project", "my-project", "--bucket", "my-bucket")
        assert result.err.count("Zone of the TPUs:") == 1
        assert "Google Cloud project" not in result.err
        assert written() == {"project": "my-project", "zone": "europe-west4-a", "bucket": "my-bucket"}


class TestOptions:
    def test_every_setting_of_the_base_can_be_said(self, tpuctl) -> None:
        more = ("--data-bucket", "gs://my-data", "--network", "lab", "--subnetwork", "lab-eu")
        last = ("--external-ips", "no", "--service-account", "tpu@my-project.iam.gserviceaccount.com")
        assert tpuctl("init", *FLAGS, *more, *last).code == 0
        assert written() == {
            "project": "my-project", "zone": "europe-west4-a", "bucket": "my-bucket",
            "data_bucket": "my-data",
            "network": "lab", "subnetwork": "lab-eu", "external_ips": "no",
            "service_account": "tpu@my-project.iam.gserviceaccount.com",
        }  # fmt: skip
        assert tpuctl("config", "show").code == 0

    @pytest.mark.parametrize(
        ("option", "value"), [("--project", "My project"), ("--zone", "EU"), ("--bucket", "My-Bucket")]
    )
    def test_a_wrong_form_is_refused_and_nothing_is_written(self, tpuctl, option, value) -> None:
        result = tpuctl("init", *FLAGS, option, value)
        assert result.code == 2
        assert f"'{value}' cannot be the {option[2:]}" in result.err
        assert not Path("tpuctl.toml").exists()

    def test_a_zone_without_tpus_is_written_with_a_word_of_warning(self, tpuctl) -> None:
        result = tpuctl("init", *FLAGS, "--zone", "europe-north2-a")
        assert result.code == 0
        assert "No TPUs are known in europe-north2-a" in result.err


class TestFromTerraform:
    def test_a_file_becomes_settings_that_the_next_command_uses(self, tpuctl) -> None:
        shutil.copy(RECORDED, "outputs.json")
        result = tpuctl("init", "--from-terraform", "outputs.json")
        assert result.code == 0, result.err
        settings = tpuctl("config", "show", "--json").json["settings"]
        assert settings["bucket"]["value"] == "demo-project-1-models"
        assert settings["data_bucket"]["value"] == "demo-project-1-pictures"
        assert settings["subnetwork"]["value"] == "vision-team-us-central2"
        assert settings["external_ips"]["value"] == "no"
        assert settings["terraform"]["value"] == "outputs.json"

    @pytest.mark.parametrize("source", ["-", "/dev/stdin"])
    def test_a_pipe_is_read_and_not_kept_to_compare_with(self, home, source) -> None:
        command = [sys.executable, "-m", "tpuctl", "init", "--from-terraform", source]
        result = subprocess.run(
            command, input=RECORDED.read_bytes(), capture_output=True, timeout=60, check=False
        )
        assert result.returncode == 0, result.stderr
        assert written()["project"] == "demo-project-1"
        assert "terraform" not in written()

    def test_options_win_over_the_file(self, tpuctl) -> None:
        assert tpuctl("init", "--from-terraform", str(RECORDED), "--bucket", "other-bucket").code == 0
        assert written()["bucket"] == "other-bucket"
        assert written()["project"] == "demo-project-1"

    def test_a_file_that_is_not_there_is_a_usage_error(self, tpuctl) -> None:
        result = tpuctl("init", "--from-terraform", "nowhere")
        assert result.code == 2
        assert "nowhere cannot be read" in result.err

    def test_a_folder_without_terraform_on_the_path_says_how_to_go_on(
        self, tpuctl, monkeypatch, tmp_path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        Path("base").mkdir()
        result = tpuctl("init", "--from-terraform", "base")
        assert result.code == 3
        assert "terraform is not on the PATH" in result.err
        assert "terraform output -json > outputs.json" in result.err

    def test_a_terraform_that_fails_is_quoted_on_one_line(self, tpuctl, monkeypatch, tmp_path) -> None:
        program = tmp_path / "bin" / "terraform"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\nprintf '│ Error: Backend\\n│ initialization required\\n' >&2\nexit 1\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        Path("base").mkdir()
        result = tpuctl("init", "--from-terraform", "base")
        assert result.code == 3
        assert "failed in base: Error: Backend initialization required" in result.err
        assert "terraform init" in result.err

    def test_a_broken_file_leaves_the_settings_as_they_were(self, tpuctl) -> None:
        assert tpuctl("init", *FLAGS).code == 0
        Path("outputs.json").write_text("{")
        assert tpuctl("init", "--from-terraform", "outputs.json", "--force").code == 3
        assert written()["project"] == "my-project"


class TestUse:
    def test_up_asks_for_the_subnetwork_and_for_no_external_address(
        self, tpuctl, simulator, monkeypatch
    ) -> None:
        monkeypatch.setenv("TPUCTL_SUBNETWORK", "lab-eu")
        monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
        planned = tpuctl("up", "v3-8", "--dry-run", "--json").json["requests"]
        assert planned[0]["body"]["networkConfig"] == {"network": "default", "subnetwork": "lab-eu"}

    def test_a_word_that_is_neither_yes_nor_no_is_refused(self, tpuctl, simulator, monkeypatch) -> None:
        monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "maybe")
        result = tpuctl("up", "v3-8", "--dry-run")
        assert result.code == 3
        assert (
            "'maybe' (TPUCTL_EXTERNAL_IPS) cannot be the external ips.\nHint: It is yes or no." in result.err
        )

    def test_datasets_have_a_bucket_of_their_own(self, tpuctl, simulator, node, monkeypatch) -> None:
        simulator.gcs.store.ensure_bucket("my-data", "sim-project", location="EUROPE-WEST4")
        monkeypatch.setenv("TPUCTL_DATA_BUCKET", "my-data")
        for name in ("cat", "dog"):
            Path("pictures", name).mkdir(parents=True)
            Image.new("L", (8, 8)).save(f"pictures/{name}/1.png")
        assert tpuctl("data", "upload", "pets", "pictures").code == 0
        assert (
            tpuctl("data", "ls", "--json").json["datasets"][0]["uri"] == "gs://my-data/datasets/pets/1.0.0/"
        )
        Path("job.py").write_text(
            "import os\nprint(os.environ['TPUCTL_DATA_DIR'], os.environ['TPUCTL_MODEL_DIR'])\n"
        )
        run = tpuctl("submit", "job.py", "--dataset", "pets", "--json").json["run"]
        data, model = tpuctl("logs", "-f").out.split()
        assert data == "gs://my-data/datasets/pets/1.0.0"
        assert model.startswith(f"gs://sim-project-tpuctl/runs/{run}/")


class TestDoctorCompares:
    def findings(self, result) -> dict[str, dict[str, str]]:
        checks, *_ = result.out.split('{\n  "schema": 1,\n  "error"')
        return {finding["check"]: finding for finding in msgspec.json.decode(checks)["checks"]}

    @pytest.fixture
    def base(self, tpuctl, monkeypatch) -> None:
        """A tpuctl.toml read from Terraform, on a machine without credentials."""
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        shutil.copy(RECORDED, "outputs.json")
        assert tpuctl("init", "--from-terraform", "outputs.json").code == 0

    @pytest.mark.usefixtures("base")
    def test_settings_that_terraform_made_are_ok_from_any_folder_below(self, tpuctl, monkeypatch) -> None:
        Path("below").mkdir()
        monkeypatch.chdir("below")
        findings = self.findings(tpuctl("doctor", "--json"))
        assert findings["terraform"]["state"] == "ok"
        assert findings["network"]["state"] == "ok", "SSH goes through IAP"
        assert "vision-team-us-central2" in findings["network"]["text"]

    @pytest.mark.parametrize("is_below", [True, False])
    def test_a_place_in_the_checkout_is_kept_without_the_folders_above_it(self, tpuctl, is_below) -> None:
        Path("project/.git").mkdir(parents=True)
        os.chdir("project")
        folder = Path("infra") if is_below else Path("..", "infra")
        folder.mkdir()
        shutil.copy(RECORDED, folder / "outputs.json")
        typed = (folder / "outputs.json").resolve() if is_below else folder / "outputs.json"
        assert tpuctl("init", "--from-terraform", str(typed)).code == 0
        kept = tomllib.loads(Path("tpuctl.toml").read_text())["terraform"]
        assert kept == os.path.join(folder, "outputs.json"), "another place is kept as typed"
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert finding["state"] == "ok"

    @pytest.mark.usefixtures("base")
    @pytest.mark.parametrize(
        ("name", "value"),
        [("BUCKET", "other-bucket"), ("NETWORK", "default"), ("ZONE", "us-east1-d"),
         ("PROJECT", "other-project"),
         ("SERVICE_ACCOUNT", "other@demo-project-1.iam.gserviceaccount.com"), ("EXTERNAL_IPS", "yes")],
    )  # fmt: skip
    def test_a_setting_that_differs_is_named_with_both_values_and_the_way_back(
        self, tpuctl, monkeypatch, name, value
    ) -> None:
        monkeypatch.setenv(f"TPUCTL_{name}", value)
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert finding["state"] == "failed"
        assert f"{name.lower()} is {value} (TPUCTL_{name}), Terraform made " in finding["text"]
        assert "tpuctl init --from-terraform outputs.json --force" in finding["fix"]

    @pytest.mark.usefixtures("base")
    def test_another_zone_of_the_region_is_no_difference(self, tpuctl, monkeypatch) -> None:
        monkeypatch.setenv("TPUCTL_ZONE", "us-central2-a")
        assert self.findings(tpuctl("doctor", "--json"))["terraform"]["state"] == "ok"

    @pytest.mark.usefixtures("base")
    def test_a_colleague_without_the_outputs_is_warned_and_compared_with_what_is_committed(
        self, tpuctl, monkeypatch
    ) -> None:
        Path("outputs.json").unlink()
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert finding["state"] == "warning"
        assert "as in tpuctl.toml, not compared with Terraform: " in finding["text"]
        assert "outputs.json is not on this machine" in finding["text"]
        monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", "other@demo-project-1.iam.gserviceaccount.com")
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert finding["state"] == "failed"
        assert "(TPUCTL_SERVICE_ACCOUNT), tpuctl.toml has vision-team-tpu@" in finding["text"]

    @pytest.fixture
    def program(self, home, monkeypatch, tmp_path) -> None:
        """A terraform that leaves a file where it ran, and a folder to run it in."""
        (tmp_path / "bin").mkdir()
        script = f"#!/bin/sh\necho > ran\nexec /bin/cat {RECORDED}\n"
        (tmp_path / "bin/terraform").write_text(script)
        (tmp_path / "bin/terraform").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        Path("base; id").mkdir()

    @pytest.mark.usefixtures("program")
    def test_terraform_is_not_run_in_a_folder_that_a_file_from_elsewhere_names(self, tpuctl) -> None:
        """A repository that was cloned holds a tpuctl.toml and a folder whose backend runs a program."""
        Path("tpuctl.toml").write_text('project = "my-project"\nterraform = "base; id"\n')
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert finding["state"] == "warning"
        assert "not compared with Terraform: terraform was never run in" in finding["text"]
        assert finding["fix"].endswith("run: tpuctl init --from-terraform 'base; id' --force")
        assert not Path("base; id/ran").exists()

    @pytest.mark.usefixtures("program")
    def test_terraform_is_run_in_a_folder_that_init_was_given(self, tpuctl) -> None:
        assert tpuctl("init", "--from-terraform", "base; id").code == 0
        Path("base; id/ran").unlink()
        assert self.findings(tpuctl("doctor", "--json"))["terraform"]["state"] == "ok"
        assert Path("base; id/ran").exists()

    def test_a_pipe_in_the_place_of_outputs_is_not_waited_for(self, tpuctl, monkeypatch) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        os.mkfifo("outputs.json")
        Path("tpuctl.toml").write_text('project = "my-project"\nterraform = "outputs.json"\n')
        finding = self.findings(tpuctl("doctor", "--json"))["terraform"]
        assert "outputs.json is neither a folder nor a file." in finding["text"]

    def test_a_bucket_far_from_the_tpus_is_a_warning_with_both_places(
        self, tpuctl, simulator, monkeypatch
    ) -> None:
        monkeypatch.setenv("TPUCTL_ZONE", "us-central2-b")
        result = tpuctl("doctor", "--json")
        assert result.code == 0
        finding = self.findings(result)["region"]
        assert finding["state"] == "warning"
        assert "gs://sim-project-tpuctl is in europe-west4, the TPUs are in us-central2" in finding["text"]
        assert "warning  region" in tpuctl("doctor").out

    def test_a_place_that_may_not_be_read_is_a_warning(self, tpuctl, simulator) -> None:
        simulator.faults.add(grpc_fault("storage.buckets.get", 7, "no storage.buckets.get access"))
        result = tpuctl("doctor", "--json")
        assert result.code == 0
        finding = self.findings(result)["region"]
        assert finding["state"] == "warning"
        assert "cannot be read" in finding["text"]
        assert "roles/storage" in finding["fix"]

    def test_a_data_bucket_that_is_missing_is_found(self, tpuctl, simulator, monkeypatch) -> None:
        monkeypatch.setenv("TPUCTL_DATA_BUCKET", "nowhere-bucket")
        finding = self.findings(tpuctl("doctor", "--json"))["bucket"]
        assert finding["state"] == "failed"
        assert "nowhere-bucket" in finding["text"]
