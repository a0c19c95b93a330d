"""The whole main job through the command line with plain Python jobs; runs/test_digits has TensorFlow's."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.polling import Backoff, poll

HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# accelerator = "v3-8"\n# ///\n'
ZONE = "projects/sim-project/locations/europe-west4-a"
Tpuctl = Callable[..., CommandResult]


def script(body: str, name: str = "job.py") -> str:
    """Write a job and return its path."""
    Path(name).write_text(HEADER + body)
    return name


def submit(tpuctl: Tpuctl, body: str, *arguments: str) -> str:
    """Submit a job and return the run's name."""
    result = tpuctl("submit", script(body), "--json", *arguments)
    assert result.code == 0, result.err
    return str(result.json["run"])


def until_running(tpuctl: Tpuctl, run: str) -> None:
    """Wait until the job has printed something."""
    poll(lambda: tpuctl("logs", run).out or None, awaiting="the first line", timeout=60, backoff=Backoff(0.1))


def test_a_job_runs_and_comes_home(tpuctl: Tpuctl, node: str) -> None:
    """The six verbs; the job writes to the bucket with the standard library, as any program might."""
    for name in ("cat", "dog"):
        Path("pictures", name).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8), number).save(f"pictures/{name}/{number}.png")
    assert tpuctl("data", "upload", "pets", "pictures").code == 0
    body = (
        "import os, sys\n"
        "print('arguments', sys.argv[1:])\n"
        "print('data', os.environ['TPUCTL_DATA_DIR'], os.environ['RATE'])\n"
        "print('no line end', end='')\n"
    )
    result = tpuctl("submit", script(body), "--dataset", "pets", "--env", "RATE=0.1", "--", "--epochs", "3")
    assert result.code == 0, result.err
    assert "Next: tpuctl logs -f" in result.err
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.err
    assert followed.out.splitlines() == [
        "arguments ['--epochs', '3']",
        "data gs://sim-project-tpuctl/datasets/pets/1.0.0 0.1",
        "no line end",
    ]
    assert tpuctl("pull", "--to", "out").code == 0
    record = runs.decode(Path("out/run.json").read_bytes(), runs.Run, "run.json")
    assert record.arguments == ("--epochs", "3")
    assert record.dataset
    assert record.dataset.name == "pets"
    assert Path("out/logs/attempt-1-worker-0.log").read_text() == followed.out.rstrip("\n")
    verdict = runs.decode(Path("out/verdict.json").read_bytes(), runs.Verdict, "verdict.json")
    assert verdict.outcome == "succeeded"
    assert tpuctl("down", "--yes").code == 0
    assert tpuctl("logs").out == followed.out, "the log is there after the machine is gone"


def test_up_twice_finds_the_node_and_down_twice_is_no_error(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    assert tpuctl("up", "v3-8", "--yes").code == 0
    again = tpuctl("up", "v3-8")
    assert again.code == 0, "nothing is created, so nothing is asked"
    assert len(simulator.world.nodes.all()) == 1
    assert tpuctl("down", "--yes").code == 0
    last = tpuctl("down", "--yes")
    assert last.code == 0
    assert "You have no TPUs to delete" in last.err


def test_down_leaves_the_nodes_of_others_alone(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "mine", "--yes").code == 0
    monkeypatch.setenv("TPUCTL_OWNER", "colleague@example.com")
    assert tpuctl("up", "v3-8", "--name", "theirs", "--yes").code == 0
    monkeypatch.delenv("TPUCTL_OWNER")
    assert tpuctl("down", "--yes").code == 0
    assert [node.name.split("/")[-1] for node in simulator.world.nodes.all()] == ["theirs"]
    assert tpuctl("down", "theirs", "--yes").code == 0


def test_a_second_user_reaches_a_node_by_adding_a_key(tpuctl: Tpuctl, node: str, monkeypatch) -> None:
    monkeypatch.setenv("TPUCTL_SSH_USER", "colleague")
    result = tpuctl("up", "v3-8", "--name", node)
    assert result.code == 0, result.err
    assert "adding your SSH key" in result.err


def test_a_failing_job_has_exit_code_100_and_its_own_in_the_json(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "import sys\nprint('so far')\nsys.exit(7)\n")
    result = tpuctl("logs", "-f")
    assert result.code == 100
    assert result.out == "so far\n"
    assert "exit code 7" in result.err
    failed = tpuctl("logs", "-f", run, "--json")
    first, last = map(msgspec.json.decode, failed.out.splitlines())
    assert first == {"schema": 1, "worker": 0, "text": "so far"}
    assert last["error"]["job_exit_code"] == 7


def test_after_a_failed_run_the_next_command_shows_the_end_of_its_log(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "for step in range(30):\n    print('step', step)\nraise ValueError('too hot')\n")
    command = f"tpuctl logs {run} --tail 20"
    assert f"Hint: See the end of its log: {command}\n" in tpuctl("logs", "-f").err
    pulled = tpuctl("pull")
    assert pulled.err.splitlines()[-1] == f"Next: {command}"
    assert f"Run '{run}' failed: worker 0's script ended with exit code 1." in pulled.err
    assert tpuctl("runs").err.splitlines()[-1] == f"Next: {command}"
    result = tpuctl(*command.split()[1:])
    assert result.code == 0
    assert len(result.out.splitlines()) == 20
    assert result.out.splitlines()[-1] == "ValueError: too hot"
    assert result.err.splitlines()[-1] == f"Run '{run}' failed: worker 0's script ended with exit code 1."


def test_the_last_lines_of_a_log_are_shown_also_while_it_is_followed(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "print('one\\ntwo\\nthree', end='')\n")
    assert tpuctl("logs", "-f").code == 0
    for arguments, lines in (
        (("--tail", "2"), "two\nthree\n"), (("--tail", "0"), ""), (("--tail", "9"), "one\ntwo\nthree\n"),
        (("-f", "--tail", "1"), "three\n"),
    ):  # fmt: skip
        assert tpuctl("logs", run, *arguments).out == lines, arguments
    assert tpuctl("pull").err.splitlines()[-1] == "Next: tpuctl down"
    assert "Next:" not in tpuctl("runs").err


def test_variables_of_the_header_and_of_the_command_line_reach_the_script(tpuctl: Tpuctl, node: str) -> None:
    show = "import os\nprint(*map(os.environ.get, ('RATE', 'SEED', 'TF_CPP_MIN_LOG_LEVEL')))\n"
    header = "# /// script\n# [tool.tpuctl.env]\n# RATE = '0.1'\n# TF_CPP_MIN_LOG_LEVEL = '3'\n# ///\n"
    Path("with_env.py").write_text(header + show)
    assert tpuctl("submit", "with_env.py", "--env", "RATE=0.2", "--env", "SEED=1").code == 0
    assert tpuctl("logs", "-f").out == "0.2 1 3\n"
    submit(tpuctl, show, "--name", "bare")
    assert tpuctl("logs", "-f", "bare").out == "None None 1\n"


def test_the_informational_lines_of_tensorflow_are_left_out_and_counted(tpuctl: Tpuctl, node: str) -> None:
    line = "I0000 00:00:1795343934.916123   32655 port.cc:153] oneDNN custom operations are on."
    submit(tpuctl, f"print({line!r})\nprint('first useful line')\n")
    result = tpuctl("logs", "-f")
    assert result.out == "first useful line\n"
    note = "Not shown: 1 informational line of TensorFlow's C++ code ('tpuctl logs --verbose' shows them)."
    assert note in result.err.splitlines()
    result = tpuctl("logs", "--verbose")
    assert (result.out, "Not shown" in result.err) == (f"{line}\nfirst useful line\n", False)
    assert len(tpuctl("logs", "--json").out.splitlines()) == 2


def test_a_job_that_dies_of_a_signal_says_which(tpuctl: Tpuctl, node: str) -> None:
    submit(tpuctl, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    result = tpuctl("logs", "-f")
    assert result.code == 100
    assert "SIGSEGV" in result.err


def test_a_job_that_cannot_get_its_packages_says_so(tpuctl: Tpuctl, node: str) -> None:
    text = HEADER.replace("[]", '["no-such-package-of-tpuctl==9"]') + "print('never')\n"
    Path("job.py").write_text(text)
    assert tpuctl("submit", "job.py").code == 0
    result = tpuctl("logs", "-f")
    assert result.code == 100
    assert "no-such-package-of-tpuctl" in result.err
    assert "never" not in result.out.splitlines()


def test_a_preempted_run_says_so_and_keeps_its_log(
    tpuctl: Tpuctl, node: str, simulator: RunningSimulator
) -> None:
    run = submit(tpuctl, "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n")
    until_running(tpuctl, run)
    simulator.call(simulator.world.preempt(f"{ZONE}/nodes/{node}"))
    result = tpuctl("logs", "-f")
    assert result.code == 7, result.err
    assert result.out == "step 1\n"
    assert "preempted" in result.err
    assert tpuctl("runs").out.split().count("preempted") == 1


def test_a_run_whose_node_is_deleted_is_stopped(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n")
    until_running(tpuctl, run)
    assert tpuctl("down", "--yes").code == 0
    result = tpuctl("logs", "-f", run)
    assert result.code == 4
    assert "the node was deleted" in result.err


def test_a_taken_run_name_is_refused_and_the_first_run_stands(tpuctl: Tpuctl, node: str) -> None:
    assert submit(tpuctl, "print('first')\n", "--name", "mine") == "mine"
    assert tpuctl("logs", "-f").code == 0
    result = tpuctl("submit", script("print('second')\n"), "--name", "mine")
    assert result.code == 4
    assert "There is a run 'mine' already" in result.err
    assert tpuctl("logs", "mine").out == "first\n"


def test_files_beside_the_script_come_along(tpuctl: Tpuctl, node: str) -> None:
    Path("extra").mkdir()
    Path("extra/words.py").write_text("WORD = 'from the bundle'\n")
    run = submit(tpuctl, "from extra.words import WORD\nprint(WORD)\n", "--include", "extra")
    assert tpuctl("logs", "-f", run).out == "from the bundle\n"


def test_files_outside_the_scripts_folder_are_refused(tpuctl: Tpuctl, node: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    result = tpuctl("submit", script("print(1)\n"), "--include", str(tmp_path / "other.py"))
    assert result.code == 2
    assert "outside the script's folder" in result.err


def test_a_secret_reaches_the_job_and_not_the_record(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "import os\nprint(os.environ['API_KEY'])\n", "--env", "API_KEY=hunter2")
    assert tpuctl("logs", "-f", run).out == "hunter2\n"
    tpuctl("pull", run, "--to", "out")
    assert "hunter2" not in Path("out/run.json").read_text()


def test_jax_runs_on_every_host_and_the_lines_carry_the_worker(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    header = HEADER.replace("v3-8", "v3-32").replace("# ///\n#", "# ///\n#", 1)
    header = header.replace("[tool.tpuctl]\n", '[tool.tpuctl]\n# framework = "jax"\n')
    Path("job.py").write_text(header + "import os\nprint('I am', os.environ['TPUCTL_WORKER'])\n")
    assert tpuctl("submit", "job.py").code == 0
    result = tpuctl("logs", "-f")
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"[{worker}] I am {worker}" for worker in range(4)]
    assert tpuctl("logs", "--worker", "2").out == "I am 2\n"


def test_pull_takes_only_committed_checkpoints_and_fetches_nothing_twice(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "print('done')\n")
    tpuctl("logs", "-f")
    bucket = f"runs/{run}/checkpoints"
    for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "ckpt-2.index", "ckpt-2.data-00000-of-00001"):
        put(f"{bucket}/{name}", b"weights")
    put(f"{bucket}/checkpoint", b'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n')
    first = tpuctl("pull", "--to", "out", "--json").json
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == [
        "checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index",
    ]  # fmt: skip
    assert len(first["uncommitted"]) == 2
    Path("out/checkpoints/ckpt-1.index").write_bytes(b"damaged")
    second = tpuctl("pull", "--to", "out", "--json").json
    assert second["kept"] == second["files"] - 1
    assert Path("out/checkpoints/ckpt-1.index").read_bytes() == b"weights"


def put(name: str, data: bytes) -> None:
    """Write an object with the real client."""
    from tpuctl.cloud.endpoints import connect
    from tpuctl.config import load

    cloud = connect(load({}))
    cloud.bucket.upload(name, [data], "application/octet-stream")
    cloud.close()


def test_the_log_of_a_running_job_can_be_left_and_come_back_to(tpuctl: Tpuctl, node: str) -> None:
    """Ctrl-C on `logs -f` exits with 130, the job keeps running, and the hint says how to follow it."""
    run = submit(tpuctl, "import time\nfor i in range(1200):\n  print(i, flush=True)\n  time.sleep(0.5)\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with commands.start("logs", "-f", run, **pipes, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"tpuctl logs -f {run}" in err
    assert "running" in tpuctl("runs").out


def test_a_reader_that_goes_away_is_no_error(tpuctl: Tpuctl, node: str) -> None:
    submit(tpuctl, "print('x' * 100000)\nprint('y' * 1000000)\n")
    tpuctl("logs", "-f")
    with commands.start("logs", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 0
    assert b"Error" not in err
    assert b"Traceback" not in err


def test_one_worker_that_fails_ends_the_run_while_the_others_wait_for_it(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    header = HEADER.replace("v3-8", "v3-32").replace(
        "[tool.tpuctl]\n", '[tool.tpuctl]\n# framework = "jax"\n'
    )
    body = "import os, time\nif os.environ['TPUCTL_WORKER'] == '2':\n  raise SystemExit(7)\ntime.sleep(600)\n"
    Path("job.py").write_text(header + body)
    assert tpuctl("submit", "job.py").code == 0
    result = tpuctl("logs", "-f")
    assert result.code == 100
    assert "worker 2's script ended with exit code 7; the others are stopped because of it" in result.err


def test_a_pull_of_a_running_run_says_so(tpuctl: Tpuctl, node: str) -> None:
    run = submit(tpuctl, "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n")
    until_running(tpuctl, run)
    result = tpuctl("pull", run, "--to", "out")
    assert result.code == 0, result.err
    assert f"Run '{run}' is still running" in result.err
    assert f"Next: tpuctl logs -f {run}" in result.err


def test_logs_name_the_run_to_pull_also_when_it_is_not_the_last(tpuctl: Tpuctl, node: str) -> None:
    first = submit(tpuctl, "print(1)\n", "--name", "first")
    tpuctl("logs", "-f", first)
    submit(tpuctl, "print(2)\n", "--name", "second")
    assert "Next: tpuctl pull first" in tpuctl("logs", "-f", first).err


def test_ls_of_one_zone_lists_that_zone(tpuctl: Tpuctl, node: str) -> None:
    assert tpuctl("ls", "--zone", "us-central1-a", "--json").json["nodes"] == []
    assert len(tpuctl("ls", "--zone", "europe-west4-a", "--json").json["nodes"]) == 1


def test_a_supervisor_killed_hard_ends_the_run_with_that_reason(tpuctl: Tpuctl, node: str) -> None:
    body = "import os, signal\nprint('going', flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\n"
    run = submit(tpuctl, body + "import time\ntime.sleep(600)\n")
    result = tpuctl("logs", "-f", run)
    assert result.code == 100
    assert "failed: worker 0: the program that runs the script was ended by SIGKILL" in result.err
    assert "going" in result.out


def test_a_supervisor_killed_hard_with_its_guard_is_noticed_by_its_host(
    tpuctl: Tpuctl, node: str, monkeypatch
) -> None:
    from tpuctl.flows.runs.evidence import decision

    body = (
        "import os, signal\nprint('going', flush=True)\nsupervisor = os.getppid()\n"
        "guard = int(open(f'/proc/{supervisor}/stat').read().rpartition(')')[2].split()[1])\n"
        "for pid in (guard, supervisor):\n    os.kill(pid, signal.SIGKILL)\n"
    )
    run = submit(tpuctl, body + "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(decision, "CHECK_NODE_AFTER", -1.0)
    monkeypatch.setattr(decision, "ASK_HOST_AFTER", -1.0)
    result = tpuctl("logs", "-f", run)
    assert result.code == 4
    assert "was lost: what ran the script on worker 0 ended without a word" in result.err


def test_a_script_whose_host_lives_goes_on_however_long_it_is_silent(
    tpuctl: Tpuctl, node: str, simulator: RunningSimulator, monkeypatch
) -> None:
    """Its writes fail for minutes, which used to be the end of it: its success is told as success."""
    from tpuctl.flows.runs.evidence import decision

    body = (
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)\nprint('done')\n"
    )
    run = submit(tpuctl, body)
    outage = simulator.faults.add("gcs-error", method="storage.objects.create", object="*/workers/*")
    for name, seconds in (("CHECK_NODE_AFTER", -1.0), ("ASK_HOST_AFTER", -1.0), ("LOST_AFTER", -1.0)):
        monkeypatch.setattr(decision, name, seconds)
    states = [tpuctl("runs", "--json").json["runs"][0]["state"] for _ in range(2)]
    assert set(states) <= {"starting", "preparing", "running"}
    simulator.faults.remove(outage.id)
    codes = f"*/w0/home/.tpuctl/runs/{run}/1/code"
    code = poll(
        lambda: next(Path(simulator.folder, "hosts").glob(codes), None), awaiting="its code", timeout=60
    )
    code.joinpath("go").touch()
    followed = tpuctl("logs", "-f", run)
    assert (followed.code, followed.out) == (0, "done\n"), followed.err


def test_two_ups_at_once_make_one_node(home: Path, simulator: RunningSimulator) -> None:
    command = ("up", "v3-8", "--yes", "--name", "one")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [commands.start(*command, **pipes) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
    assert len(simulator.world.nodes.all()) == 1


def test_a_host_that_has_no_python_says_so(tpuctl: Tpuctl, node: str, simulator: RunningSimulator) -> None:
    """The run is ended with a verdict, so that nobody waits for it."""
    home = next(Path(simulator.folder, "hosts").glob("*/w0/home"))
    (home / ".tpuctl").write_text("in the way")
    result = tpuctl("submit", script("print(1)\n"), "--name", "stuck")
    assert result.code == 8
    assert "worker 0" in result.err.lower()
    followed = tpuctl("logs", "-f", "stuck")
    assert followed.code == 100
    assert "could not be started" in followed.err


def test_nothing_of_the_users_environment_leaks_to_the_job(tpuctl: Tpuctl, node: str, monkeypatch) -> None:
    monkeypatch.setenv("MY_PRIVATE_TOKEN", "hunter2")
    run = submit(tpuctl, "import os\nprint(sorted(os.environ))\n")
    result = tpuctl("logs", "-f", run)
    assert "MY_PRIVATE_TOKEN" not in result.out
    assert "TPUCTL_RUN" in result.out
    assert os.environ["MY_PRIVATE_TOKEN"]


@pytest.mark.parametrize(
    ("command", "requests"),
    [
        (("up", "v3-8", "--dry-run"), "POST https://tpu.googleapis.com/v2/projects/sim-project/locations/"),
        (
            ("data", "upload", "pets", "pictures", "--dry-run"),
            "/upload/storage/v1/b/sim-project-tpuctl/o?uploadType=resumable&ifGenerationMatch=0\n"
            '{\n  "name": "datasets/pets/1.0.0/staging/',
        ),
    ],
    ids=["up", "upload"],
)
def test_a_dry_run_shows_the_requests_and_sends_none(
    tpuctl: Tpuctl, simulator: RunningSimulator, command, requests
) -> None:
    Path("pictures/cat").mkdir(parents=True)
    Image.new("L", (8, 8)).save("pictures/cat/1.png")
    result = tpuctl(*command)
    assert result.code == 0, result.err
    assert requests in result.out
    assert simulator.world.nodes.all() == []
    assert tpuctl("data", "ls", "--json").json["datasets"] == []


def test_a_dry_run_of_down_and_submit_changes_nothing(tpuctl: Tpuctl, node: str) -> None:
    down = tpuctl("down", "--dry-run")
    assert f"DELETE https://tpu.googleapis.com/v2/{ZONE}/nodes/{node}" in down.out
    result = tpuctl("submit", script("print(1)\n"), "--dry-run")
    assert '{\n  "name": "bundles/' in result.out
    assert f"SSH {node} worker 0" in result.out
    assert tpuctl("runs", "--json").json["runs"] == []
    assert len(tpuctl("ls", "--json").json["nodes"]) == 1


def test_the_same_dataset_twice_is_kept_and_another_is_refused(tpuctl: Tpuctl, simulator) -> None:
    Path("pictures/cat").mkdir(parents=True)
    Image.new("L", (8, 8)).save("pictures/cat/1.png")
    assert tpuctl("data", "upload", "pets", "pictures", "--json").json["already_there"] is False
    assert tpuctl("data", "upload", "pets", "pictures", "--json").json["already_there"] is True
    Image.new("L", (8, 8), 9).save("pictures/cat/2.png")
    result = tpuctl("data", "upload", "pets", "pictures")
    assert result.code == 4
    assert "--version" in result.err
    assert tpuctl("data", "upload", "pets", "pictures", "--version", "1.0.1").code == 0
    assert [dataset["version"] for dataset in tpuctl("data", "ls", "--json").json["datasets"]] == [
        "1.0.0",
        "1.0.1",
    ]
