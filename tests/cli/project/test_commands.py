"""First contact: what tpuctl says without a project, init, config, doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tpuctl.sim.faults import grpc_fault


def test_without_a_project_it_says_how_to_start_and_that_it_would_simulate(tpuctl) -> None:
    result = tpuctl()
    assert result.code == 0
    assert "Commands run on the simulator (no project is configured)" in result.out
    assert "tpuctl up v3-8" in result.out
    assert "tpuctl init" in result.out


def test_with_a_project_it_names_the_project(tpuctl, monkeypatch) -> None:
    monkeypatch.setenv("TPUCTL_PROJECT", "my-project")
    assert "project my-project" in tpuctl().out


def test_init_writes_a_file_that_commands_below_it_use(tpuctl, monkeypatch) -> None:
    arguments = ("--project", "my-project", "--zone", "us-central1-a", "--bucket", "gs://my-bucket/")
    assert tpuctl("init", *arguments).code == 0
    Path("below").mkdir()
    monkeypatch.chdir("below")
    settings = tpuctl("config", "show", "--json").json["settings"]
    assert settings["target"]["value"] == "gcp"
    for name, value in (("project", "my-project"), ("zone", "us-central1-a"), ("bucket", "my-bucket")):
        assert settings[name]["value"] == value
        assert settings[name]["origin"].endswith("tpuctl.toml")


def test_init_does_not_replace_a_file_unless_forced(tpuctl) -> None:
    arguments = ("init", "--project", "my-project", "--zone", "us-central1-a", "--bucket", "my-bucket")
    Path("tpuctl.toml").write_text('project = "mine"\n')
    result = tpuctl(*arguments)
    assert result.code == 4
    assert Path("tpuctl.toml").read_text() == 'project = "mine"\n'
    assert tpuctl(*arguments, "--force").code == 0
    assert 'project = "my-project"' in Path("tpuctl.toml").read_text()


def test_config_show_names_the_origin_of_every_value(tpuctl, monkeypatch) -> None:
    monkeypatch.setenv("TPUCTL_ZONE", "us-central1-a")
    out = tpuctl("config", "show", "--target", "sim").out
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "--target" in rows["target"]
    assert "TPUCTL_ZONE" in rows["zone"]
    assert "default of the simulator" in rows["bucket"]


class TestDoctor:
    ORDER = (
        "python", "credentials", "project", "api", "zone", "bucket", "region", "rules", "rights", "network",
        "iap", "terraform",
        "ssh key",
    )  # fmt: skip

    def test_everything_is_in_place_on_the_simulator(self, tpuctl, simulator) -> None:
        result = tpuctl("doctor", "--json")
        assert result.code == 0, result.err
        assert [finding["check"] for finding in result.json["checks"]] == list(self.ORDER)
        assert {finding["state"] for finding in result.json["checks"]} == {"ok"}

    def test_no_credentials_are_found_with_their_fix_and_what_needs_them_is_skipped(
        self, tpuctl, monkeypatch
    ) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        for name in ("PROJECT", "ZONE", "BUCKET"):
            monkeypatch.setenv(f"TPUCTL_{name}", "europe-west4-a")
        result = tpuctl("doctor")
        assert result.code == 3
        assert "fix: Run 'gcloud auth application-default login'" in result.out
        states = {line.split()[1]: line.split()[0] for line in result.out.splitlines() if "fix:" not in line}
        assert states["credentials"] == "FAILED"
        assert states["api"] == states["bucket"] == "skipped"

    @pytest.mark.parametrize(
        ("rule", "check", "fix"),
        [
            (grpc_fault("tpu.ListNodes", 7, "denied 'tpu.nodes.list'"), "api", "roles/tpu.admin"),
            (
                grpc_fault("tpu.ListAcceleratorTypes", 7, "no", reason="LOCATION_POLICY_VIOLATED"),
                "zone",
                "zone",
            ),
            (
                grpc_fault("storage.objects.list", 7, "no storage.objects.list access"),
                "bucket",
                "roles/storage",
            ),
        ],
        ids=["api", "zone", "bucket"],
    )
    def test_each_failure_names_its_fix(self, tpuctl, simulator, rule, check, fix) -> None:
        simulator.faults.add(rule)
        result = tpuctl("doctor", "--json")
        assert result.code == 3
        failed = [finding for finding in result.json["checks"] if finding["state"] == "failed"]
        assert [finding["check"] for finding in failed] == [check]
        assert fix in failed[0]["fix"]
        error = result.json["error"]
        assert (error["kind"], error["exit_code"]) == ("configuration", 3)
        assert error["message"] == f"1 check failed: {check}."
        assert error["hint"] == failed[0]["fix"]

    def test_its_json_is_one_document_also_with_a_configuration_that_cannot_be_read(self, tpuctl) -> None:
        Path("tpuctl.toml").write_text("broken")
        result = tpuctl("doctor", "--json")
        assert result.code == 3
        assert result.json["error"]["kind"] == "configuration"

    def test_its_json_is_one_document_also_with_a_wrong_option(self, tpuctl) -> None:
        result = tpuctl("doctor", "--json", "--wrong")
        assert result.code == 2
        assert "--wrong" in result.json["error"]["message"]

    def test_a_disabled_api_is_found_with_the_page_that_enables_it(self, tpuctl, simulator) -> None:
        simulator.world.disabled_projects.add("sim-project")
        out = tpuctl("doctor").out
        assert "FAILED   api" in out
        assert (
            "Enable it: gcloud services enable tpu.googleapis.com --project sim-project, or at https://"
            in out
        )

    def test_no_project_is_found(self, tpuctl, monkeypatch) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        out = tpuctl("doctor", "--target", "gcp").out
        assert "FAILED   project" in out
        assert "tpuctl init" in out

    def test_an_unusable_key_is_found(self, tpuctl, simulator, home) -> None:
        (home / "key").write_text("not a key")
        os.environ["TPUCTL_SSH_KEY"] = str(home / "key")
        try:
            out = tpuctl("doctor").out
        finally:
            del os.environ["TPUCTL_SSH_KEY"]
        assert "FAILED   ssh key" in out

    def test_it_creates_nothing(self, tpuctl, simulator, tmp_path) -> None:
        tpuctl("doctor")
        assert not (tmp_path / "state" / "ssh").exists()
        assert simulator.world.nodes.all() == []


class TestSimulator:
    """The simulator as a process, started at its first use."""

    def test_it_starts_by_itself_says_so_and_stops(self, home: Path) -> None:
        def tpuctl(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "tpuctl", *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        try:
            first = tpuctl("up", "v3-8", "--yes", "--name", "n1")
            assert first.returncode == 0, first.stderr
            assert "[sim]" in first.stderr
            assert "[sim]" not in first.stdout
            assert "running" in tpuctl("sim", "status").stdout
            assert tpuctl("sim", "stop").returncode == 0
            assert "not running" in tpuctl("sim", "status").stderr
            again = tpuctl("ls", "--json")
            assert '"n1"' in again.stdout, "nodes are there after a restart"
            assert '"READY"' in again.stdout
        finally:
            stopped = tpuctl("sim", "stop")
        assert stopped.returncode == 0


def test_a_bug_is_told_with_the_file_that_has_its_traceback(tpuctl, home, monkeypatch, capsys) -> None:
    from tpuctl.cli import main

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["ls"]) == 1
    err = capsys.readouterr().err
    path = Path(err.strip().splitlines()[-1].split()[-1])
    assert "Traceback" not in err
    assert "RuntimeError: unforeseen" in path.read_text()


def test_a_bug_is_one_json_document_too(monkeypatch, home, capsys) -> None:
    from tpuctl.cli import main

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["doctor", "--json"]) == 1
    assert msgspec.json.decode(capsys.readouterr().out)["error"]["kind"] == "bug"
