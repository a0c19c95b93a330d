"""Bad input of every kind: one clear sentence, a hint, the right exit code, nothing created."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from PIL import Image

from tpuctl.sim.faults import grpc_fault

Command = Callable[..., object]

JOB = """\
# /// script
# dependencies = []
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "digits"
# ///
print("hello")
"""


@pytest.fixture
def job(home: Path) -> Path:
    path = Path("job.py")
    path.write_text(JOB)
    return path


@pytest.fixture
def pictures(home: Path) -> Path:
    for name in ("cat", "dog"):
        folder = Path("pictures") / name
        folder.mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), number).save(folder / f"{number}.png")
    return Path("pictures")


@pytest.fixture
def nothing_created(simulator):
    """Fails a test that leaves a node, an operation or an object behind."""
    yield
    assert simulator.world.nodes.all() == []
    assert objects(simulator) == []


def objects(simulator) -> list[str]:
    storage = simulator.simulator.endpoints["storage"]
    listing = requests.get(f"{storage}/storage/v1/b/sim-project-tpuctl/o", timeout=60).json()
    return [item["name"] for item in listing.get("items", [])]


def refused(result, code: int, *words: str) -> None:
    """One sentence and a hint on stderr, nothing on stdout, the exit code, no traceback."""
    lines = result.err.splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert result.code == code, result.err
    assert len(errors) == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err
    assert any(line.startswith("Hint: ") for line in lines), result.err
    assert result.out == ""


@pytest.mark.usefixtures("nothing_created")
class TestUp:
    def test_an_unknown_accelerator_names_the_nearest(self, tpuctl) -> None:
        refused(tpuctl("up", "v3-9", "--yes"), 2, "no accelerator type 'v3-9'", "v3-8")

    def test_a_word_that_is_no_accelerator_names_examples(self, tpuctl) -> None:
        refused(tpuctl("up", "gpu", "--yes"), 2, "'gpu'", "v3-8")

    def test_a_generation_without_a_size_names_its_types(self, tpuctl) -> None:
        refused(tpuctl("up", "trillium", "--yes"), 2, "'trillium' is a TPU generation", "v6e-8")

    def test_an_unknown_generation_names_those_there_are(self, tpuctl) -> None:
        refused(tpuctl("up", "v99", "--yes"), 2, "'v99'", "v5e (v5litepod-8), v5p (v5p-8), v6e (v6e-8)")

    def test_an_unknown_zone_is_named(self, tpuctl) -> None:
        result = tpuctl("up", "v3-8", "--zone", "europe-west4-q", "--yes")
        refused(result, 3, "europe-west4-q")

    def test_a_zone_of_no_region_names_the_nearest(self, tpuctl) -> None:
        refused(tpuctl("up", "v3-8", "--zone", "europe-wset4-a", "--yes"), 2, "europe-west4-a")

    def test_a_type_that_the_zone_lacks_names_zones_that_had_it(self, tpuctl) -> None:
        refused(tpuctl("up", "v4-8", "--yes"), 2, "v4-8 is not offered in europe-west4-a", "us-central2-b")

    def test_an_unknown_runtime_names_the_nearest(self, tpuctl) -> None:
        refused(tpuctl("up", "v3-8", "--runtime", "tpu-vm-tf-2.18", "--yes"), 2, "tpu-vm-tf-2.18.0")

    def test_a_name_that_cannot_be(self, tpuctl) -> None:
        refused(tpuctl("up", "v3-8", "--name", "My_TPU", "--yes"), 2, "'My_TPU' cannot name a node")

    def test_without_a_terminal_and_without_yes_nothing_is_created(self, tpuctl) -> None:
        result = tpuctl("up", "v3-8")
        assert result.code == 10
        assert "--yes" in result.err

    def test_a_stockout_says_so(self, tpuctl, simulator) -> None:
        text = 'There is no more capacity in the zone "europe-west4-a"'
        simulator.faults.add(grpc_fault("tpu.CreateNode", 8, text, late=True))
        refused(tpuctl("up", "v3-8", "--yes"), 5, "no more capacity", "next zone")

    def test_a_quota_that_was_never_granted_is_told_from_a_stockout(self, tpuctl, simulator) -> None:
        quota = "TPUV3sPodPerProjectPerZoneForTPUAPI"
        text = f"Quota limit '{quota}' has been exceeded. Limit: 0 in zone europe-west4-a."
        simulator.faults.add(grpc_fault("tpu.CreateNode", 8, text))
        refused(tpuctl("up", "v3-8", "--yes"), 6, "never granted")

    def test_a_disabled_api_names_the_page_that_enables_it(self, tpuctl, simulator) -> None:
        simulator.world.disabled_projects.add("sim-project")
        refused(tpuctl("up", "v3-8", "--yes"), 3, "not enabled", "https://console.developers.google.com")

    def test_no_permission(self, tpuctl, simulator) -> None:
        text = "Permission 'tpu.nodes.create' denied on 'projects/sim-project/locations/europe-west4-a'"
        simulator.faults.add(grpc_fault("tpu.CreateNode", 7, text))
        refused(tpuctl("up", "v3-8", "--yes"), 3, "tpu.nodes.create", "roles/tpu.admin")

    def test_the_api_is_down(self, tpuctl, simulator, monkeypatch) -> None:
        monkeypatch.setattr("tpuctl.cloud.tpu.api_requests.RETRY_TIMEOUT", 0)
        simulator.faults.add(grpc_fault("tpu.*", 14, "unavailable"))
        refused(tpuctl("up", "v3-8", "--yes"), 9, "cannot be reached")


class TestNodes:
    def test_down_of_a_node_that_is_not_there_names_the_nearest(self, tpuctl, node) -> None:
        refused(tpuctl("down", "n2", "--yes"), 4, "There is no node 'n2'", "n1")

    def test_up_of_a_name_that_is_another_type(self, tpuctl, node) -> None:
        refused(tpuctl("up", "v2-8", "--name", node, "--yes"), 4, "'n1' exists and is a v3-8")

    def test_up_of_a_node_that_is_otherwise_than_asked(self, tpuctl, node) -> None:
        refused(tpuctl("up", "v3-8", "--name", node, "--spot", "--yes"), 4, "'n1' exists and is not spot")
        runtime = ("--runtime", "tpu-vm-tf-2.17.1-pjrt")
        result = tpuctl("up", "v3-8", "--name", node, *runtime, "--yes")
        refused(result, 4, "has the runtime tpu-ubuntu2204-base")

    def test_up_of_a_preempted_node_asks_before_it_is_deleted(self, tpuctl, node, simulator) -> None:
        simulator.call(simulator.world.preempt(f"projects/sim-project/locations/europe-west4-a/nodes/{node}"))
        refused(tpuctl("up", "v3-8", "--name", node), 10, "PREEMPTED", "it is deleted first")

    def test_down_asks_first(self, tpuctl, node, simulator) -> None:
        assert tpuctl("down").code == 10
        assert len(simulator.world.nodes.all()) == 1


@pytest.mark.usefixtures("nothing_created")
class TestUpload:
    def test_a_folder_that_is_not_there(self, tpuctl) -> None:
        refused(tpuctl("data", "upload", "digits", "./nowhere"), 2, "nowhere")

    def test_an_unreadable_picture_is_named(self, tpuctl, pictures) -> None:
        (pictures / "cat" / "0.png").write_bytes(b"not a picture")
        refused(tpuctl("data", "upload", "pets", str(pictures)), 2, "0.png")

    def test_a_name_that_cannot_be(self, tpuctl, pictures) -> None:
        refused(tpuctl("data", "upload", "My Pets", str(pictures)), 2, "My Pets")

    @pytest.mark.parametrize("option", ["--hosts", "--shards"])
    @pytest.mark.parametrize("number", ["0", "-1"])
    def test_numbers_below_one(self, tpuctl, simulator, pictures, option, number) -> None:
        result = tpuctl("data", "upload", "pets", str(pictures), option, number)
        assert result.code == 2
        assert option in result.err

    def test_a_bucket_that_may_not_be_read(self, tpuctl, simulator, pictures) -> None:
        text = "caller does not have storage.objects.list access to the Google Cloud Storage bucket."
        simulator.faults.add(grpc_fault("storage.objects.*", 7, text))
        refused(tpuctl("data", "upload", "pets", str(pictures)), 3, "storage.objects.", "roles/storage")
        simulator.faults.clear()

    def test_a_bucket_that_is_not_there(self, tpuctl, simulator, pictures) -> None:
        result = tpuctl("data", "upload", "pets", str(pictures), "--bucket", "no-such-bucket")
        refused(result, 4, "gs://no-such-bucket does not exist", "buckets create")

    def test_a_missing_bucket_is_found_before_the_source_is_read(self, tpuctl, simulator, pictures) -> None:
        (pictures / "cat" / "0.png").write_bytes(b"not a picture")
        result = tpuctl("data", "upload", "pets", str(pictures), "--bucket", "no-such-bucket")
        refused(result, 4, "gs://no-such-bucket does not exist")

    def test_a_source_in_a_bucket_that_is_not_there(self, tpuctl, simulator) -> None:
        for command in (("data", "upload"), ("data", "plan")):
            result = tpuctl(*command, "w4", "gs://foo/bar")
            refused(result, 4, "gs://foo does not exist", "gcloud storage ls")
            refused(tpuctl(*command, "w4", "gs://"), 2, "'gs://' names no bucket")
            refused(
                tpuctl(*command, "w4", "s3://foo/bar"), 2, "is a URL, and SOURCE is read from this machine"
            )


class TestPaths:
    @pytest.mark.parametrize(
        "command",
        [
            ("submit", "gs://b/x"), ("submit", "job.py", "--include", "gs://b/x"),
            ("data", "fetch", "mnist", "--from", "gs://b/x"), ("init", "--from-terraform", "gs://b/x"),
            ("sim", "start", "--scenario", "gs://b/x"),
        ],
        ids=" ".join,
    )  # fmt: skip
    def test_what_is_read_from_a_bucket_says_how_to_copy_it(self, tpuctl, command) -> None:
        refused(tpuctl(*command), 2, "gs://b/x is in a bucket", "gcloud storage cp -r gs://b/x .")

    @pytest.mark.parametrize(
        "command",
        [
            ("pull", "--to", "gs://b/x"), ("data", "fetch", "mnist", "--to", "gs://b/x"),
            ("data", "head", "digits", "--image", "gs://b/x"),
            ("data", "upload", "digits", ".", "--keep", "gs://b/x"),
        ],
        ids=" ".join,
    )  # fmt: skip
    def test_what_is_written_says_how_to_copy_it_into_a_bucket(self, tpuctl, command) -> None:
        refused(tpuctl(*command), 2, "gs://b/x is in a bucket", "gcloud storage cp -r PATH gs://b/x")

    def test_a_url_says_how_to_download_it(self, tpuctl) -> None:
        url = "https://example.com/cats.zip"
        refused(tpuctl("data", "plan", "cats", url), 2, f"{url} is a URL", f"curl -LO {url}")

    @pytest.mark.parametrize(
        "command",
        [("submit",), ("data", "plan", "cats"), ("verify",), ("init", "--from-terraform")],
        ids=" ".join,
    )
    def test_one_that_no_file_can_have(self, tpuctl, command) -> None:
        refused(tpuctl(*command, "x" * 300), 2, "File name too long: ", "xxx")


class TestSubmit:
    @pytest.mark.usefixtures("nothing_created")
    def test_a_script_that_is_not_there(self, tpuctl) -> None:
        refused(tpuctl("submit", "jobs/nothing.py"), 2, "jobs/nothing.py")

    @pytest.mark.usefixtures("nothing_created")
    def test_a_header_that_is_no_toml(self, tpuctl) -> None:
        Path("job.py").write_text("# /// script\n# dependencies = [\n# ///\n")
        refused(tpuctl("submit", "job.py"), 2, "header of job.py")

    @pytest.mark.usefixtures("nothing_created")
    def test_a_header_that_asks_for_an_unknown_accelerator(self, tpuctl) -> None:
        Path("job.py").write_text(JOB.replace("v3-8", "v3-9"))
        refused(tpuctl("submit", "job.py"), 2, "v3-9", "v3-8")

    @pytest.mark.usefixtures("nothing_created")
    def test_a_script_with_a_syntax_error(self, tpuctl) -> None:
        Path("job.py").write_text(JOB + "for step in range(3)\n    pass\n")
        refused(tpuctl("submit", "job.py"), 2, "job.py has a syntax error, line 8", "for step in range(3)")

    @pytest.mark.usefixtures("nothing_created")
    def test_a_module_of_the_script_with_a_syntax_error(self, tpuctl) -> None:
        Path("job.py").write_text("import model\n")
        Path("model.py").write_text("def forward(:\n")
        refused(tpuctl("submit", "job.py"), 2, "model.py has a syntax error, line 1", "def forward(:")
        Path("model.py").unlink()
        Path("model").mkdir()
        Path("model/__init__.py").write_text("def forward(:\n")
        refused(tpuctl("submit", "job.py"), 2, "model/__init__.py has a syntax error")

    def test_a_script_for_a_newer_python_is_refused_with_both_versions(self, tpuctl, node) -> None:
        requires = '# /// script\n# requires-python = ">=3.99"\n# ///\n'
        Path("job.py").write_text(f"{requires}for step in range(3)\n    pass\n")
        result = tpuctl("submit", "job.py", "--name", "r1")
        assert result.code == 0
        assert "job.py has a syntax error, line 4" in result.err
        assert "it asks for Python >=3.99, and this is 3." in result.err
        assert "the script requires Python >=3.99, the host has 3." in tpuctl("logs", "r1", "-f").err

    @pytest.mark.usefixtures("nothing_created")
    def test_a_dataset_that_is_not_there(self, tpuctl, job) -> None:
        refused(tpuctl("submit", "job.py"), 4, "no dataset 'digits'", "tpuctl data upload digits")

    @pytest.mark.usefixtures("nothing_created")
    def test_an_environment_that_is_no_pair(self, tpuctl, job) -> None:
        refused(tpuctl("submit", "job.py", "--env", "=1"), 2, "does not begin with the name of a variable")
        refused(tpuctl("submit", "job.py", "--env", "RATE"), 2, "This shell has no variable RATE")

    def test_no_tpu_to_run_on(self, tpuctl, simulator, job, pictures) -> None:
        assert tpuctl("data", "upload", "digits", str(pictures)).code == 0
        before = objects(simulator)
        refused(tpuctl("submit", "job.py"), 4, "no v3-8 to run on", "tpuctl up v3-8")
        refused(tpuctl("submit", "job.py", "--tpu", "n7"), 4, "no node 'n7'")
        assert objects(simulator) == before

    def test_a_run_name_that_cannot_be(self, tpuctl, simulator, job) -> None:
        refused(tpuctl("submit", "job.py", "--name", "My Run"), 2, "'My Run' cannot name a run")


@pytest.mark.usefixtures("nothing_created")
class TestRuns:
    @pytest.mark.parametrize("command", ["logs", "pull"])
    def test_a_run_that_is_not_there(self, tpuctl, simulator, command) -> None:
        refused(tpuctl(command, "no-such-run"), 4, "no run 'no-such-run'", "tpuctl runs")

    @pytest.mark.parametrize("command", ["logs", "pull"])
    def test_no_run_at_all(self, tpuctl, simulator, command) -> None:
        refused(tpuctl(command), 4, "no run yet", "tpuctl submit")

    def test_a_worker_that_the_run_does_not_have(self, tpuctl, simulator) -> None:
        record(simulator)
        refused(tpuctl("logs", "r1", "--worker", "5"), 2, "Worker 5 does not run 'r1'", "0")
        forget(simulator)

    def test_a_place_to_pull_to_that_holds_something_else(self, tpuctl, simulator, pictures) -> None:
        record(simulator)
        refused(tpuctl("pull", "r1", "--to", str(pictures)), 2, "not of run 'r1'", "--to")
        refused(tpuctl("pull", "r1", "--to", str(pictures / "cat" / "0.png")), 2, "cannot be written", "--to")
        forget(simulator)

    @pytest.mark.parametrize("command", [("logs",), ("pull",), ("runs",), ("data", "ls")])
    def test_a_bucket_that_is_not_there(self, tpuctl, simulator, command) -> None:
        refused(tpuctl(*command, "--bucket", "no-such-bucket"), 4, "gs://no-such-bucket does not exist")

    @pytest.mark.parametrize("command", [("logs",), ("pull",), ("runs",), ("data", "ls")])
    def test_a_bucket_that_may_not_be_read(self, tpuctl, simulator, command) -> None:
        text = "caller does not have storage.objects.list access to the Google Cloud Storage bucket."
        simulator.faults.add(grpc_fault("storage.objects.*", 7, text))
        refused(tpuctl(*command), 3, "storage.objects.list")
        simulator.faults.clear()


def record(simulator) -> None:
    """Put the records of a run into the bucket that nobody has started."""
    from tpuctl import runs

    tpu = runs.Tpu("n1", "1", "sim-project", "europe-west4-a", "v3-8", "r", 1, False)
    attempt = runs.Attempt(1, "2100-01-01T00:00:00Z", tpu, (0,))
    run = runs.Run("r1", "2100-01-01T00:00:00Z", "a@b", "job.py", (), "0" * 64, "tensorflow", "v3-8", (), {})
    for name, content in (("runs/r1/attempts/1/attempt.json", attempt), ("runs/r1/run.json", run)):
        requests.post(
            f"{simulator.simulator.endpoints['storage']}/upload/storage/v1/b/sim-project-tpuctl/o",
            params={"uploadType": "media", "name": name}, data=runs.encode(content), timeout=60,
        ).raise_for_status()  # fmt: skip


def forget(simulator) -> None:
    for name in objects(simulator):
        quoted = name.replace("/", "%2F")
        url = f"{simulator.simulator.endpoints['storage']}/storage/v1/b/sim-project-tpuctl/o/{quoted}"
        requests.delete(url, timeout=60).raise_for_status()


class TestConfiguration:
    """On the gcp target, with nothing of Google's in reach."""

    @pytest.fixture(autouse=True)
    def _no_google(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for a metadata server
        monkeypatch.setenv("TPUCTL_PROJECT", "my-project")
        monkeypatch.setenv("TPUCTL_ZONE", "europe-west4-a")
        monkeypatch.setenv("TPUCTL_BUCKET", "my-bucket")

    @pytest.mark.parametrize(
        "command",
        [("up", "v3-8", "--yes"), ("ls",), ("down",), ("logs",), ("pull",), ("runs",), ("data", "ls")],
        ids=" ".join,
    )
    def test_no_credentials_say_how_to_log_in(self, tpuctl, command) -> None:
        refused(tpuctl(*command), 3, "no Google Cloud credentials", "gcloud auth application-default login")

    def test_submit_and_upload_need_them_too(self, tpuctl, job, pictures) -> None:
        refused(tpuctl("submit", "job.py"), 3, "no Google Cloud credentials")
        refused(tpuctl("data", "upload", "pets", str(pictures)), 3, "no Google Cloud credentials")

    def test_no_zone_names_zones_with_the_type(self, tpuctl, monkeypatch) -> None:
        monkeypatch.delenv("TPUCTL_ZONE")
        refused(tpuctl("up", "v3-8", "--yes"), 3, "No zone is configured", "europe-west4-a")

    def test_no_project_with_the_gcp_target(self, tpuctl, monkeypatch) -> None:
        monkeypatch.delenv("TPUCTL_PROJECT")
        refused(tpuctl("ls", "--target", "gcp"), 3, "No project is configured", "tpuctl init")

    def test_no_bucket(self, tpuctl, monkeypatch) -> None:
        monkeypatch.delenv("TPUCTL_BUCKET")
        refused(tpuctl("runs"), 3, "No bucket is configured", "tpuctl init")


class TestWords:
    def test_an_unknown_command_names_the_nearest(self, tpuctl) -> None:
        result = tpuctl("sumbit")
        assert result.code == 2
        assert "There is no command 'sumbit'. Did you mean 'tpuctl submit'?" in result.err

    def test_a_state_folder_that_cannot_be(self, tpuctl, monkeypatch) -> None:
        Path("file").write_text("")
        monkeypatch.setenv("TPUCTL_STATE", str(Path("file").resolve()))
        refused(tpuctl("ls"), 3, "cannot keep its state", "TPUCTL_STATE")

    def test_a_working_folder_that_is_gone(self, tpuctl, monkeypatch, tmp_path) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        refused(tpuctl("ls"), 3, "working folder")

    def test_init_without_a_terminal_says_what_to_do(self, tpuctl) -> None:
        command = [sys.executable, "-m", "tpuctl", "init"]
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert result.returncode == 10
        assert "not interactive" in result.stderr
        assert not Path("tpuctl.toml").exists()

    def test_an_option_of_the_script_gets_a_hint(self, tpuctl) -> None:
        assert "after --" in tpuctl("submit", "job.py", "--epochs", "3").err

    def test_an_unknown_option(self, tpuctl) -> None:
        assert tpuctl("ls", "--wrong").code == 2

    def test_a_missing_argument(self, tpuctl) -> None:
        result = tpuctl("up")
        assert result.code == 2
        assert "There is no TPU type." in result.err

    def test_an_error_in_a_stream_of_json_is_one_line_of_it(self, tpuctl, simulator) -> None:
        result = tpuctl("logs", "no-such-run", "--json")
        assert result.code == 4
        assert len(result.out.splitlines()) == 1
        assert result.json["error"]["kind"] == "state"

    def test_json_for_the_script_is_not_json_for_tpuctl(self, tpuctl, simulator) -> None:
        result = tpuctl("submit", "nothing.py", "--", "--json")
        assert result.code == 2
        assert result.out == ""

    def test_a_wrong_command_line_is_json_too(self, tpuctl) -> None:
        assert tpuctl("up", "--json").json["error"]["exit_code"] == 2

    def test_an_error_is_json_when_json_was_asked_for(self, tpuctl, simulator) -> None:
        result = tpuctl("up", "v3-9", "--json")
        assert result.code == 2
        assert result.json["error"]["kind"] == "usage"
        assert result.json["error"]["exit_code"] == 2
        assert "v3-8" in result.json["error"]["nearest"]
