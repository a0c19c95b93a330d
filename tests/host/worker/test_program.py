"""The program as it runs on a host: `python3 worker.zip launch spec.json`, in the host's own environment."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC, Host, kill_with_guard, tar
from tests.host.worker.preparation.wheels import wheel
from tests.running_simulator import RunningSimulator
from tests.sim.live_host import wait_until
from tpuctl.bucket_layout import RunPaths
from tpuctl.flows.runs.submission.launch import worker_program
from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import WorkerStatus, encode
from tpuctl.polling import Backoff, poll

WAIT = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
STATUS = RunPaths("r1").status(1, 0)
FAST = "timing.HEARTBEAT = 0.2; timing.LOG_INTERVALS = ((float('inf'), 0.1),); timing.POLL_INTERVAL = 0.05"


def old_python() -> str:
    """Return the oldest Python that the worker promises to run on, or "" when this machine has none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions = glob(f"{pyenv}/versions/3.8.*/bin/python3.8")  # none in a folder of another user
    for path in (shutil.which("python3.8"), *sorted(versions)):
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return ""


PYTHON38 = old_python()
no_python38 = pytest.mark.skipif(not PYTHON38, reason="no python3.8 that runs on this machine")


@pytest.fixture(params=["this", pytest.param("3.8", marks=no_python38)])
def either(request: pytest.FixtureRequest, host: Host) -> Host:
    """A host with this Python, and one with the oldest."""
    if request.param == "3.8":
        host.python = PYTHON38
    return host


def hosts_own(host: Host, folder: Path, *wheels: Path) -> None:
    """Install wheels on a host, as its image brings them."""
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    host.environment["PYTHONPATH"] = str(folder)


def digest(path: Path) -> str:
    return f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


class TestScript:
    def test_it_runs_to_its_end_and_the_status_says_how(self, either: Host) -> None:
        script = "import os, sys\nprint(sys.argv[1:], os.getcwd())\nprint('no line end', end='')\n"
        pid = either.start(script, arguments=["--rate", "0.1", "a b", "$(id)", ""])
        assert pid > 0
        assert either.status().state in ("preparing", "running", "finished"), (
            "it is there when launch answers"
        )
        status = either.finished()
        assert (status.exit_code, status.signal, status.error, status.stopped) == (0, "", "", "")
        assert (status.tpu_uid, status.worker, status.attempt) == ("77", 0, 1)
        assert status.started <= status.finished <= status.heartbeat
        assert status.log_chunks == len(either.chunks()) >= 1
        arguments = "['--rate', '0.1', 'a b', '$(id)', '']"
        assert either.log().decode() == f"{arguments} {either.folder}/code\nno line end"

    @pytest.mark.parametrize(
        ("script", "code", "signal_name"),
        [
            ("import sys; sys.exit(3)", 3, ""),
            ("raise SystemExit('words')", 1, ""),
            ("not python", 1, ""),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139, "SIGSEGV"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL"),
            ("import os; os._exit(255)", 255, ""),
        ],
        ids=["exit", "exit with words", "no Python", "SIGSEGV", "SIGKILL", "255"],
    )
    def test_the_status_has_exit_code_and_signal(
        self, host: Host, script: str, code: int, signal_name: str
    ) -> None:
        host.start(script)
        status = host.finished()
        assert (status.exit_code, status.signal, status.error) == (code, signal_name, "")

    def test_a_script_that_is_not_in_the_bundle_fails_with_pythons_error(self, host: Host) -> None:
        host.start("", script="other.py")
        assert host.finished().exit_code == 2
        assert b"other.py" in host.log()

    def test_its_bytes_arrive_as_they_are(self, host: Host) -> None:
        host.start(
            "import sys\nsys.stdout.buffer.write(b'\\xff\\x00\\r\\n\\xc3')\nsys.stderr.write('both')\n"
        )
        assert host.finished().exit_code == 0
        assert host.log() == b"\xff\x00\r\n\xc3both"

    def test_its_environment_is_the_hosts_and_the_runs(self, host: Host) -> None:
        script = "import json, os\nprint(json.dumps(dict(os.environ)))"
        host.start(script, environment={"RATE": "0.1", "TPUCTL_DATA_DIR": "gs://d"})
        assert host.finished().exit_code == 0
        variables = json.loads(host.log())
        assert variables["TPU_NAME"] == "local"
        assert (variables["RATE"], variables["TPUCTL_DATA_DIR"]) == ("0.1", "gs://d")
        assert variables["AIP_MODEL_DIR"] == "gs://sim-project-tpuctl/runs/r1/outputs"
        assert variables["HOME"] == host.environment["HOME"]

    def test_it_reaches_the_bucket_through_the_hosts_proxy_where_there_is_no_emulator(
        self, either: Host
    ) -> None:
        """As on a real host: by https, with certificates."""
        del either.environment[gcs.EMULATOR]
        either.start("print('done')")
        assert either.finished().exit_code == 0
        assert either.log() == b"done\n"

    def test_it_is_not_started_twice(self, host: Host) -> None:
        host.start("print('once')")
        assert host.finished().exit_code == 0
        before = host.bucket.objects(STATUS)
        again = host.launch()
        assert again.returncode == 1
        assert json.loads(again.stdout) == {"error": "this attempt was started on this host before"}
        assert host.bucket.objects(STATUS) == before

    def test_a_name_is_used_again_where_its_run_was_removed(self, host: Host) -> None:
        host.start("print('first')\nopen('left', 'w')")
        assert host.finished().exit_code == 0
        for item in host.bucket.objects("runs/r1/"):
            host.bucket.remove(item)
        assert host.start("import os\nprint(os.path.exists('left'))", key="another") > 0
        assert host.finished().exit_code == 0
        assert host.log() == b"False\n"
        assert "started on this host before" in host.launch().stdout

    def test_a_removed_run_that_lives_keeps_its_folder(self, host: Host) -> None:
        host.start(WAIT)
        host.prepare("print('second')", key="another")
        assert "started on this host before" in host.launch().stdout
        assert host.ask() == {"state": "alive"}

    def test_a_launch_that_was_killed_before_it_started_anything_is_none(self, host: Host) -> None:
        """It had the lock: as far as one knew, a supervisor had ended without a word."""
        path = host.prepare("print('once')")
        spec = path.read_bytes()
        killed = host.launch("import os; main._start = lambda *rest: os.kill(os.getpid(), 9)")
        assert killed.returncode == -9
        assert host.ask() == {"state": "absent", "detail": "its start there was cut off"}
        path.write_bytes(spec)
        assert host.launch().returncode == 0
        assert host.finished().exit_code == 0
        assert host.log() == b"once\n"

    def test_of_two_launches_at_once_one_starts_it(self, host: Host) -> None:
        path = host.prepare("print('once')")
        spec = path.read_bytes()
        with (host.folder / "lock").open("ab") as lock:  # as the first one that has not answered yet
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "started on this host before" in host.launch().stdout
            assert host.ask() == {"state": "alive"}
        path.write_bytes(spec)
        assert host.launch().returncode == 0
        assert host.finished().exit_code == 0

    def test_children_that_keep_running_do_not_delay_its_end(self, host: Host) -> None:
        host.start("import subprocess\nsubprocess.Popen(['sleep', '600'])\nprint('bye')")
        assert host.finished().exit_code == 0


class TestPreparation:
    def test_a_bundle_of_another_hash_ends_the_run_with_an_error(self, host: Host) -> None:
        host.start("print('never')", bundle_sha256="0" * 64)
        status = host.finished()
        assert status.exit_code is None
        assert status.error.startswith("BundleError: the code in gs://sim-project-tpuctl/bundles/")
        assert host.log() == b""

    def test_a_bundle_that_leaves_its_folder_ends_the_run_with_an_error(self, host: Host) -> None:
        host.start("", data=tar(("../job.py", b"print('never')")))
        assert "not a plain file inside it" in host.finished().error
        assert not (host.folder / "job.py").exists()

    def test_a_missing_bundle_ends_the_run_with_an_error(self, host: Host) -> None:
        host.start("print('never')", bundle="bundles/gone.tar.gz")
        assert "FileNotFoundError" in host.finished().error

    @pytest.mark.parametrize("user_path", [False, True], ids=["", "with a PYTHONPATH of the user's"])
    def test_a_missing_package_is_installed_beside_the_run(
        self, either: Host, tmp_path: Path, user_path: bool
    ) -> None:
        wheel(tmp_path, "tpuctl_wheel_of_a_test")
        either.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
        changes = {"environment": {"PYTHONPATH": "lib"}} if user_path else {}
        script = "from tpuctl_wheel_of_a_test import WORD\nprint(WORD)"
        either.start(script, dependencies=["tpuctl-wheel-of-a-test>=1", "json"], **changes)
        assert either.finished().exit_code == 0, either.log().decode()
        log = either.log().decode().splitlines()
        assert log[0] == "[tpuctl] installing tpuctl-wheel-of-a-test>=1"
        assert log[-1] == "hello from the wheel"
        assert len(list(either.folder.parents[2].glob("packages/*/tpuctl_wheel_of_a_test.py"))) == 1

    def test_a_package_that_pip_cannot_find_ends_the_run_with_an_error(self, host: Host) -> None:
        host.environment.update(PIP_NO_INDEX="1")
        host.start("print('never')", dependencies=["no-such-package-of-tpuctl==9"])
        status = host.finished()
        assert status.exit_code is None
        assert status.error == (
            "PackageError: pip could not install no-such-package-of-tpuctl==9 (exit code 1, see the log)"
        )
        assert b"No matching distribution found" in host.log()
        assert b"never" not in host.log()

    @pytest.mark.parametrize(
        "text",
        ["--find-links=http://127.0.0.1:1/", "-r/etc/hostname", "numpy --pre", "x @ file:///tmp/x", "."],
    )
    def test_what_is_no_requirement_ends_the_run_before_pip(self, host: Host, text: str) -> None:
        """Though the laptop has refused it before."""
        host.start("print('never')", dependencies=["json", text])
        assert host.finished().error.startswith(f"PackageError: '{text}' is not a requirement")
        assert host.log() == b""

    def test_a_pin_is_not_satisfied_by_another_version(self, either: Host, tmp_path: Path) -> None:
        hosts_own(either, tmp_path / "image", wheel(tmp_path, "tpuctl_wheel_of_a_test", "2.4.6"))
        (tmp_path / "index").mkdir()
        wheel(tmp_path / "index", "tpuctl_wheel_of_a_test", "1.21.0")
        either.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "index"))
        script = "from importlib.metadata import version\nprint(version('tpuctl_wheel_of_a_test'))"
        either.start(script, dependencies=["tpuctl-wheel-of-a-test==1.21.0"])
        assert either.finished().exit_code == 0, either.log().decode()
        log = either.log().decode().splitlines()
        assert log[0] == "[tpuctl] installing tpuctl-wheel-of-a-test==1.21.0 (the host has 2.4.6)"
        assert log[-1] == "1.21.0"

    @pytest.mark.parametrize(
        "text", ["tpuctl_wheel.of-a_Test>=2,<3", "tpuctl-wheel-of-a-test[words]~=2.4", "other-module>=2"]
    )
    def test_a_version_that_the_host_has_is_not_installed_again(
        self, either: Host, tmp_path: Path, text: str
    ) -> None:
        requires = "Provides-Extra: words\nRequires-Dist: word-of-a-test>=1; extra == 'words'\n"
        first = wheel(tmp_path, "tpuctl_wheel_of_a_test", "2.4.6", requires)
        hosts_own(either, tmp_path / "image", first, wheel(tmp_path, "word_of_a_test"))
        names = tmp_path / "image/tpuctl_wheel_of_a_test-2.4.6.dist-info/top_level.txt"
        names.write_text("tpuctl_wheel_of_a_test\nother_module\n")
        either.environment.update(PIP_NO_INDEX="1")
        either.start("print('ran')", dependencies=[text])
        assert either.finished().exit_code == 0, either.log().decode()
        assert either.log() == b"ran\n"

    def test_an_extra_whose_packages_are_missing_is_installed(self, host: Host, tmp_path: Path) -> None:
        requires = "Provides-Extra: words\nRequires-Dist: word-of-a-test>=1; extra == 'words'\n"
        hosts_own(host, tmp_path / "image", wheel(tmp_path, "tpuctl_wheel_of_a_test", "2.4.6", requires))
        wheel(tmp_path, "word_of_a_test")
        host.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
        host.start("import word_of_a_test", dependencies=["tpuctl-wheel-of-a-test[words]"])
        assert host.finished().exit_code == 0, host.log().decode()

    def test_a_host_without_an_index_says_what_it_has(self, host: Host, tmp_path: Path) -> None:
        hosts_own(host, tmp_path / "image", wheel(tmp_path, "tpuctl_wheel_of_a_test", "2.4.6"))
        host.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS="")
        host.start("print('never')", dependencies=["tpuctl-wheel-of-a-test==1.21.0"])
        assert host.finished().error == (
            "PackageError: pip could not install tpuctl-wheel-of-a-test==1.21.0 (the host has 2.4.6) "
            "(exit code 1, see the log)"
        )

    def locked(self, host: Host, tmp_path: Path, line: str, **changes: object) -> None:
        """Start a script that needs the wheel, with a lock file of one line."""
        host.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
        script = b"from tpuctl_wheel_of_a_test import WORD\nprint(WORD)"
        data = tar(("job.py", script), ("deep/requirements.lock", line.encode()))
        host.start("", data=data, requirements="deep/requirements.lock", **changes)

    def test_a_lock_file_is_installed_with_its_hashes(self, either: Host, tmp_path: Path) -> None:
        line = f"tpuctl-wheel-of-a-test==1.0 {digest(wheel(tmp_path, 'tpuctl_wheel_of_a_test'))}\n"
        self.locked(either, tmp_path, line, dependencies=["tpuctl-wheel-of-a-test", "json"])
        assert either.finished().exit_code == 0, either.log().decode()
        assert either.log().splitlines()[0] == b"[tpuctl] installing requirements.lock"
        assert either.log().splitlines()[-1] == b"hello from the wheel"

    def test_a_wrong_hash_ends_the_run_with_the_reason(self, either: Host, tmp_path: Path) -> None:
        wheel(tmp_path, "tpuctl_wheel_of_a_test")
        self.locked(either, tmp_path, f"tpuctl-wheel-of-a-test==1.0 --hash=sha256:{'0' * 64}\n")
        assert either.finished().error == (
            "PackageError: a file for requirements.lock does not have the hash that it should have "
            "(see the log)"
        )
        assert b"hello" not in either.log()

    def test_a_package_that_the_lock_file_requires_without_a_hash_is_not_installed(
        self, host: Host, tmp_path: Path
    ) -> None:
        wheel(tmp_path, "word_of_a_test")
        path = wheel(tmp_path, "tpuctl_wheel_of_a_test", "1.0", "Requires-Dist: word-of-a-test\n")
        self.locked(host, tmp_path, f"tpuctl-wheel-of-a-test==1.0 {digest(path)}\n")
        assert host.finished().error.startswith("PackageError: pip could not install requirements.lock")

    def test_a_dependency_that_is_neither_locked_nor_on_the_host_ends_the_run(
        self, host: Host, tmp_path: Path
    ) -> None:
        line = f"tpuctl-wheel-of-a-test==1.0 {digest(wheel(tmp_path, 'tpuctl_wheel_of_a_test'))}\n"
        self.locked(host, tmp_path, line, dependencies=["no-such-package-of-tpuctl"])
        assert host.finished().error == (
            "PackageError: no-such-package-of-tpuctl is not on the host and not in requirements.lock"
        )

    def test_an_option_in_a_lock_file_ends_the_run_before_pip(self, host: Host, tmp_path: Path) -> None:
        self.locked(host, tmp_path, "--find-links=http://127.0.0.1:1/\n")
        assert "line 1: '--find-links=http://127.0.0.1:1/' is not a requirement" in host.finished().error
        assert host.log() == b""

    def test_the_setup_command_runs_before_the_script_in_its_folder_with_its_variables(
        self, either: Host
    ) -> None:
        command = "echo $WORD; echo 'WORD = 1' > made.py"
        either.start("import made\nprint(made.WORD)", setup=command, environment={"WORD": "of the run"})
        assert either.finished().exit_code == 0, either.log().decode()
        assert either.log() == b"[tpuctl] running the setup command\nof the run\n1\n"

    def test_a_setup_command_that_fails_ends_the_run_with_its_exit_code(self, host: Host) -> None:
        host.start("print('never')", setup="echo no disk; exit 3")
        status = host.finished()
        assert status.error == "SetupError: the setup command failed with exit code 3 (see the log)"
        assert status.exit_code is None
        assert host.log() == b"[tpuctl] running the setup command\nno disk\n"

    def test_a_host_that_stops_ends_the_setup_command(
        self, host: Host, wait_for_end: Callable[[int], None]
    ) -> None:
        pid = host.start("print('never')", setup="echo $$ > ../pid; echo waits; exec sleep 600")
        host.wait_for_output(b"waits")
        os.kill(pid, signal.SIGTERM)
        assert host.finished().error == "the host was stopped before the script started"
        wait_for_end(int((host.folder / "pid").read_text()))

    @pytest.mark.parametrize("specifier", [">=3.99", "<3", "==3.1.*"])
    def test_a_python_that_nobody_has_ends_the_run_with_the_way_out(
        self, either: Host, specifier: str
    ) -> None:
        either.environment["PIP_NO_INDEX"] = "1"
        either.start("print('never')", requires_python=specifier)
        error = either.finished().error
        assert error.startswith(f"PythonError: the script requires Python {specifier}, the host has 3.")
        assert error.endswith("put one into the bucket: tpuctl python 3.12")
        assert b"never" not in either.log()

    def test_own_packages_hide_the_images_for_good(self, host: Host) -> None:
        script = (
            "import importlib.util, os, shutil, sys\n"
            "print(importlib.util.find_spec('msgspec'), shutil.which('python') == sys.executable)\n"
        )
        host.start(script, packages="own")
        assert host.finished().exit_code == 0, host.log().decode()
        assert host.log() == b"None True\n"
        record = host.bucket.read("runs/r1/attempts/1/workers/0/environment.json")
        assert json.loads(record)["image"].keys().isdisjoint({"msgspec", "click"})

    def test_launch_reports_a_missing_bucket(self, host: Host) -> None:
        host.prepare("print('never')", bucket="no-such-bucket")
        process = host.launch()
        assert process.returncode == 1
        assert "404 The specified bucket does not exist" in json.loads(process.stdout)["error"]
        assert "no-such-bucket" in json.loads(process.stdout)["error"]

    def test_launch_reports_a_spec_of_another_schema(self, host: Host) -> None:
        host.prepare("print('never')", schema=2)
        assert "is not of schema 1" in json.loads(host.launch().stdout)["error"]

    def test_launch_ends_a_supervisor_that_stays_silent_so_that_it_starts_nothing_later(
        self, host: Host, simulator: RunningSimulator
    ) -> None:
        host.prepare("print('never')")
        stall = simulator.faults.add("gcs-stall", method="storage.objects.create")
        process = host.launch("timing.START_TIMEOUT = 1")
        assert (process.returncode, json.loads(process.stdout)) == (1, {"error": "no answer in 1 s"})
        simulator.faults.remove(stall.id)
        wait_until(lambda: not host.supervisors())
        assert not (host.folder / "started").exists()
        assert not (host.folder / "code").exists()

    def test_the_status_of_another_supervisor_is_left_alone(self, host: Host) -> None:
        other = supervisor_status(host)
        host.prepare("print('never')")
        assert "AnotherSupervisorError: supervisor" in json.loads(host.launch().stdout)["error"]
        assert host.bucket.read(STATUS) == other

    def test_a_status_that_is_no_supervisors_does_not_keep_a_run_from_its_start(self, host: Host) -> None:
        host.bucket.create(STATUS, b"theirs")
        host.start("print('started')")
        assert host.finished().exit_code == 0
        assert "another program has changed gs://" in host.supervisor_log()


class TestStop:
    def test_a_script_that_handles_the_signal_chooses_its_exit_code(self, either: Host) -> None:
        script = (
            "import signal, sys, time\n"
            "def stop(*_):\n  print('saving', flush=True)\n  sys.exit(5)\n"
            "signal.signal(signal.SIGTERM, stop)\n"
        )
        pid = either.start(script + WAIT)
        either.wait_for_output(b"step 1")
        os.kill(pid, signal.SIGTERM)
        status = either.finished()
        assert (status.stopped, status.exit_code, status.signal) == ("SIGTERM", 5, "")
        assert either.log() == b"step 1\nsaving\n"

    def test_a_script_without_a_handler_ends_by_the_signal(self, host: Host) -> None:
        pid = host.start(WAIT)
        host.wait_for_output(b"step 1")
        os.kill(pid, signal.SIGTERM)
        status = host.finished()
        assert (status.stopped, status.exit_code, status.signal) == ("SIGTERM", 143, "SIGTERM")

    def test_a_host_may_signal_the_script_before_the_supervisor(self, host: Host) -> None:
        script = "import os\nprint(os.getpid(), flush=True)\n" + WAIT
        with host.supervise(script, f"{FAST}; timing.SIGNAL_DELAY = 60") as process:
            host.wait_for_output(b"step 1")
            pid = int((host.folder / "log").read_text().split()[0])
            os.kill(pid, signal.SIGTERM)
            table = Path(f"/proc/{pid}")  # also that of a zombie, until the supervisor has seen it end
            poll(
                lambda: not table.exists() or None, awaiting="its end", timeout=60, backoff=Backoff(0.02, 0.1)
            )
            process.terminate()
        status = host.finished()
        assert (status.stopped, status.exit_code, status.signal) == ("SIGTERM", 143, "SIGTERM")

    def test_a_script_that_ignores_it_is_killed_after_a_while_with_its_children(
        self, host: Host, wait_for_end
    ) -> None:
        script = (
            "import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        )
        with host.supervise(script + WAIT, f"{FAST}; timing.STOP_GRACE = 0.3") as process:
            host.wait_for_output(b"step 1")
            process.terminate()
        status = host.finished()
        assert (status.stopped, status.signal) == ("SIGTERM", "SIGKILL")
        wait_for_end(int(host.log().split()[0]))

    def test_a_stop_during_the_installation_ends_the_run_before_the_script(self, host: Host) -> None:
        """The index takes the connection and never answers."""
        with socket.create_server(("127.0.0.1", 0)) as index:
            host.environment.update(PIP_INDEX_URL=f"http://127.0.0.1:{index.getsockname()[1]}/simple")
            pid = host.start("print('never')", dependencies=["no-such-package-of-tpuctl"])
            host.wait_for_output(b"[tpuctl] installing")
            os.kill(pid, signal.SIGTERM)
            status = host.finished()
        assert (status.stopped, status.exit_code) == ("SIGTERM", None)
        assert status.error == "the host was stopped before the script started"
        assert b"never" not in host.log()

    def test_a_supervisor_killed_hard_with_its_guard_leaves_the_log_on_disk_and_a_stale_status(
        self, host: Host, wait_for_end
    ) -> None:
        pid = host.start("import os\nprint(os.getpid(), flush=True)\n" + WAIT)
        host.wait_for_output(b"step 1")
        poll(
            lambda: True if host.status().state == "running" else None,
            awaiting="running",
            timeout=60,
            backoff=Backoff(0.02),
        )
        kill_with_guard(pid)
        wait_for_end(pid)
        before = host.bucket.read(STATUS)
        script = int((host.folder / "log").read_bytes().split()[0])
        os.kill(script, 0)
        os.kill(script, signal.SIGTERM)
        wait_for_end(script)
        assert host.bucket.read(STATUS) == before
        assert not host.status().is_finished


DEAF = timing.SIGNAL_DELAY + 2 * timing.POLL_INTERVAL
COUNTING = (
    "import signal, sys, threading, time\n"
    "signalled = threading.Event()\n"
    "def count(*_):\n  print('term', flush=True)\n  signalled.set()\n"
    "signal.signal(signal.SIGTERM, count)\n"
    "print('step 1', flush=True)\n"
    f"signalled.wait(600)\nend = time.monotonic() + {DEAF}\n"
    "while time.monotonic() < end:\n  time.sleep(0.05)\n"
)
"""Ends a while after its first SIGTERM: within it, a supervisor that does not see that the host signals
everybody sends another."""


class TestHostThatStops:
    @pytest.mark.parametrize(("kind", "cause"), [("preemption", "preempted"), ("maintenance", "maintenance")])
    def test_its_script_is_signalled_once_and_its_status_says_why(
        self, host: Host, simulator: RunningSimulator, kind: str, cause: str
    ) -> None:
        host.start(COUNTING)
        host.wait_for_output(b"step 1")
        simulator.faults.add(kind, node="n1", notice=0.5)
        status = host.finished()
        assert (status.stopped, status.cause) == ("SIGTERM", cause)
        assert host.log().count(b"term") == 1

    def test_a_script_whose_supervisor_alone_is_signalled_is_signalled_by_it(self, host: Host) -> None:
        with host.supervise(COUNTING, FAST) as process:
            host.wait_for_output(b"step 1")
            process.terminate()
        assert (host.finished().cause, host.log().count(b"term")) == ("", 1)


class TestCause:
    def test_a_full_disk_is_told_as_such(self, host: Host, simulator: RunningSimulator) -> None:
        host.start(
            "import time\nprint('step 1', flush=True)\nwhile True:\n  open('x', 'w')\n  time.sleep(0.02)\n"
        )
        host.wait_for_output(b"step 1")
        simulator.faults.add("disk-full", node="n1")
        status = host.finished()
        assert (status.exit_code, status.cause) == (1, "disk full")

    def test_a_full_disk_is_told_where_the_log_tells_nothing(
        self, host: Host, simulator: RunningSimulator
    ) -> None:
        """The log is on that disk."""
        host.start(
            "import os, time\nprint('step 1', flush=True)\n"
            "while not os.path.exists('../full'):\n  time.sleep(0.02)\nraise SystemExit(1)\n"
        )
        host.wait_for_output(b"step 1")
        simulator.break_hosts("disk-full", node="n1")
        (host.folder / "full").touch()
        status = host.finished()
        assert (status.exit_code, status.cause, status.tail) == (1, "disk full", "step 1")

    def test_the_log_may_tell_that_another_disk_is_full(self, host: Host) -> None:
        host.start("import errno, os\nraise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), '/mnt/x')\n")
        status = host.finished()
        assert (status.exit_code, status.cause) == (1, "disk full")
        assert status.tail.startswith("OSError: [Errno 28] No space left on device")

    def test_its_host_knows_how_a_worker_is(self, host: Host, wait_for_end) -> None:
        """Also where nothing of it reaches the bucket."""

        pid = host.start(WAIT)
        script = poll(lambda: host.status().pid or None, awaiting="the script", timeout=60)
        assert host.ask() == {"state": "alive"}
        kill_with_guard(pid)
        wait_for_end(pid)
        gone = host.ask()
        assert (gone["state"], gone["detail"]) == ("gone", "")
        assert gone["status"]["state"] == "running"  # type: ignore[index]
        os.killpg(script, signal.SIGKILL)
        (host.folder / "lock").unlink()
        assert host.ask() == {"state": "absent"}


class TestBucketTrouble:
    """Heartbeats every 0.2 s, one short pause between tries."""

    def test_log_and_heartbeats_arrive_while_the_script_runs(self, host: Host) -> None:
        with host.supervise(WAIT, FAST) as process:
            poll(
                lambda: host.log() or None, awaiting="the first chunk", timeout=60, backoff=Backoff(0.05, 0.1)
            )
            first = host.bucket.objects(STATUS)[0].generation
            poll(
                lambda: True if host.bucket.objects(STATUS)[0].generation > first else None,
                awaiting="a heartbeat", timeout=60, backoff=Backoff(0.05, 0.1),
            )  # fmt: skip
            process.terminate()
        assert host.status().is_finished

    def test_heartbeats_come_while_a_log_is_shipped_that_grows_faster(
        self, host: Host, simulator: RunningSimulator, wait_for_end: Callable[[int], None]
    ) -> None:
        """And SIGTERM ends the script: nothing waits for the log."""
        slow = simulator.faults.add(
            "gcs-slow", latency=0.3, method="storage.objects.create", object="*/log/*"
        )
        script = (
            "import os, time\nopen('../pid', 'w').write(str(os.getpid()))\n"
            "while True:\n  print('x' * 999, flush=True)\n  time.sleep(0.05)\n"
        )
        constants = f"{FAST}; timing.STOP_GRACE = 0.2\nfrom tpuctl.host.worker import reporting"
        constants += "\nreporting.CHUNK = 1000"
        with host.supervise(script, constants) as process:
            poll(lambda: host.chunks() or None, awaiting="a chunk", timeout=60, backoff=Backoff(0.05))
            for number in range(3):
                first = host.bucket.objects(STATUS)[0].generation
                poll(
                    lambda first=first: True if host.bucket.objects(STATUS)[0].generation > first else None,
                    awaiting=f"heartbeat {number}", timeout=60, backoff=Backoff(0.05, 0.1),
                )  # fmt: skip
            process.terminate()
            wait_for_end(int((host.folder / "pid").read_text()))
            shipped = len(host.chunks())
            assert 1000 * shipped < (host.folder / "log").stat().st_size, "the log still waits"
            simulator.faults.remove(slow.id)
        assert host.finished().stopped == "SIGTERM"

    def test_the_script_keeps_running_while_the_bucket_is_unreachable(self, host: Host, simulator) -> None:
        from tpuctl.sim.faults import grpc_fault

        script = (
            "import os, time\nprint('step 1', flush=True)\n"
            "while not os.path.exists('../go'):\n  time.sleep(0.02)\nprint('step 2')\n"
        )
        with host.supervise(script, f"{FAST}; timing.REQUEST_PAUSES = (0, 0.05)"):
            poll(
                lambda: host.log() or None, awaiting="the first chunk", timeout=60, backoff=Backoff(0.05, 0.1)
            )
            simulator.faults.add(grpc_fault("storage.objects.create", 14, "away"))
            poll(
                lambda: True if "503" in host.supervisor_log() else None,
                awaiting="trouble",
                timeout=60,
                backoff=Backoff(0.05),
            )
            simulator.faults.clear()
            (host.folder / "go").touch()
        assert host.finished().exit_code == 0
        assert host.log() == b"step 1\nstep 2\n"

    def test_a_status_that_cannot_be_written_does_not_end_the_script(self, host: Host, simulator) -> None:
        """`launch` waits for the first status; later ones may fail."""
        from tpuctl.sim.faults import grpc_fault

        constants = (
            f"{FAST}; timing.REQUEST_PAUSES = (0,)\n"
            "go = supervisor.Supervisor._start\n"
            "def start(self, installed):\n"
            "    process = go(self, installed)\n"
            "    import os, time\n"
            "    while not os.path.exists('away'): time.sleep(0.01)\n"
            "    return process\n"
            "supervisor.Supervisor._start = start"
        )
        script = "import os, time\nprint('step 1')\nwhile not os.path.exists('../go'):\n  time.sleep(0.02)\n"
        with host.supervise(script + "print('step 2')", constants):
            host.wait_for_output(b"step 1")
            simulator.faults.add(grpc_fault("storage.objects.create", 14, "away"))
            (host.folder / "away").touch()
            poll(
                lambda: True if "503" in host.supervisor_log() else None,
                awaiting="trouble",
                timeout=60,
                backoff=Backoff(0.02),
            )
            simulator.faults.clear()
            (host.folder / "go").touch()
        status = host.finished()
        assert (status.exit_code, status.error) == (0, "")
        assert host.log() == b"step 1\nstep 2\n"

    def test_the_last_status_is_retried_until_the_bucket_is_reachable(self, host: Host, simulator) -> None:
        """A success must not become a lost run because the bucket was unreachable for a moment."""
        from tpuctl.sim.faults import grpc_fault

        script = "import os, time\nprint('step 1')\nwhile not os.path.exists('../go'):\n  time.sleep(0.02)\n"
        with host.supervise(script + "print('step 2')", f"{FAST}; timing.REQUEST_PAUSES = (0,)") as process:
            host.wait_for_output(b"step 1")
            simulator.faults.add(grpc_fault("storage.objects.create", 14, "away"))
            (host.folder / "go").touch()
            host.wait_for_output(b"step 2")
            tries = host.supervisor_log().count("503") + 8  # more than a heartbeat and a shipping in flight
            poll(
                lambda: True if host.supervisor_log().count("503") > tries else None,
                awaiting="trouble", timeout=60, backoff=Backoff(0.02),
            )  # fmt: skip
            assert process.poll() is None, "it keeps trying"
            assert not host.status().is_finished
            simulator.faults.clear()
        status = host.finished()
        assert (status.exit_code, status.error) == (0, "")
        assert host.log() == b"step 1\nstep 2\n"

    def test_a_script_whose_status_another_supervisor_has_written_is_stopped(
        self, host: Host, wait_for_end
    ) -> None:
        """Two must not train into the same checkpoints."""
        with host.supervise("import os\nprint(os.getpid(), flush=True)\n" + WAIT, FAST) as process:
            host.wait_for_output(b"step 1")
            other = supervisor_status(host)
            assert process.wait(60) != 0
        wait_for_end(int((host.folder / "log").read_bytes().split()[0]))
        assert host.bucket.read(STATUS) == other
        assert "of the same attempt has written" in host.supervisor_log()

    def test_a_script_keeps_running_when_another_program_writes_or_deletes_its_status(
        self, host: Host
    ) -> None:
        script = (
            "import os, time\nprint('step 1', flush=True)\n"
            "while not os.path.exists('../go'):\n  time.sleep(0.02)\n"
        )
        with host.supervise(script, FAST):
            host.wait_for_output(b"step 1")
            for number in range(3):
                host.bucket.upload(STATUS, [b'{"state": "finished", "exit_code": 0}'], "application/json")
                poll(
                    lambda: host.bucket.read(STATUS).count(b'"seal"') or None,
                    awaiting=f"the status after write {number}", timeout=60, backoff=Backoff(0.02),
                )  # fmt: skip
            (host.folder / "go").touch()
        assert (host.finished().exit_code, host.status().stopped) == (0, "")
        assert host.supervisor_log().count("another program has changed") >= 3


def supervisor_status(host: Host) -> bytes:
    """Write the status of another supervisor of the attempt, and return it."""
    name = "f" * 16
    seal = hmac.new(SPEC.key.encode(), f"{STATUS}\n{name}".encode(), "sha256").hexdigest()
    data = encode(WorkerStatus(0, 1, "77", "running", "2026-01-01T00:00:00Z", supervisor=name, seal=seal))
    host.bucket.upload(STATUS, [data], "application/json")
    return data


def test_the_program_is_launched_over_ssh(host: Host) -> None:
    from tpuctl.cloud.endpoints import connect
    from tpuctl.config import load

    host.prepare("import os\nprint(os.environ['SSH_CONNECTION'] != '')")
    cloud = connect(load({}))
    node = cloud.provider.list_nodes().nodes[0]
    with cloud.ssh.connect(node, 0, cloud.provider.host_keys(node.id)[0]) as session:
        place = str(host.folder.relative_to(host.environment["HOME"]))
        process = session.run(["python3", f"{place}/worker.zip", "launch", f"{place}/spec.json"])
    cloud.close()
    assert process.exit_code == 0, process.stdout + process.stderr
    assert host.finished().exit_code == 0, "it outlives the connection"
    assert host.log() == b"True\n"


SLOW = {"packaging", "importlib.metadata", "mimetypes", "ctypes"}
"""What most scripts do not need, and takes as long to import as a tenth of Python's own start, or longer."""


def test_a_start_imports_none_of_what_takes_long(tmp_path: Path) -> None:
    program = tmp_path / "worker.zip"
    program.write_bytes(worker_program())
    code = "import sys\nimport tpuctl.host.worker.main, tpuctl.host.worker.supervisor\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(program)!r})\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert SLOW & set(result.stdout.split()) == set()


def test_the_program_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """Isolated from every installed package, and under the oldest Python when there is one."""
    from tpuctl.flows.runs.submission.launch import worker_program

    (tmp_path / "worker.zip").write_bytes(worker_program())
    for python in filter(None, (sys.executable, PYTHON38)):
        process = subprocess.run(
            [python, "-I", "-S", "worker.zip", "launch", str(tmp_path / "spec.json")],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "spec.json" in json.loads(process.stdout)["error"], process.stderr
