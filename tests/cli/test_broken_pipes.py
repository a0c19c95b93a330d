"""A reader who leaves ends a command quietly, a full disk does not; neither is a connection that breaks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.main import run
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]


def test_a_reader_who_leaves_ends_the_command_quietly(home: Path, tmp_path: Path) -> None:
    """As `tpuctl runs | head -1` does."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = tmp_path / "errors"
    with open(os.devnull) as nothing, errors.open("wb") as stderr:
        descriptors = [nothing.fileno(), writer, stderr.fileno()]
        assert commands.run(("-m", "tpuctl", "help", "up"), os.environ, descriptors) == 0
    os.close(writer)
    assert errors.read_bytes() == b""


def test_what_changes_something_is_done_although_nobody_reads_its_output(simulator: RunningSimulator) -> None:
    """`tpuctl down --yes 2>&1 | head -1` ended with 0, before it had deleted anything."""
    reader, writer = os.pipe()
    os.close(reader)
    for words, states in (
        (("up", "v3-8", "--name", "n1"), ["READY"]), (("stop", "n1"), ["STOPPED"]),
        (("up", "v3-8", "--name", "n1"), ["READY"]), (("down", "n1"), []),
    ):  # fmt: skip
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), writer, writer]
            assert commands.run(("-m", "tpuctl", *words, "--yes"), os.environ, descriptors) == 0
        assert [node.state for node in simulator.world.nodes.all()] == states, words
    os.close(writer)


JOB = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, time\nprint('step 1', flush=True)\nwhile not os.path.exists('../go'):\n  time.sleep(0.05)\n"
    "print('step 2')\n"
)
SUBMIT = ("submit", "job.py", "--name", "r1", "--tpu", "n1")
RUN = ("run", "job.py", "--name", "r1", "--up", "v3-8", "--down", "--yes")


class Followed:
    """A command that follows the run r1, on a terminal or into a pipe, until its first line is there."""

    def __init__(self, simulator: RunningSimulator, *command: str, hears: bool = True) -> None:
        """Without `hears` it ignores the signal of a terminal that is closed, as after `disown`."""
        self._simulator = simulator
        Path("job.py").write_text(JOB)
        self._reader, writer = os.openpty()
        ignoring = [] if hears else ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
        default = ["env", "--default-signal=HUP"]  # which a run of the tests under nohup ignores
        words = ["setsid", "--ctty", *default, *ignoring, sys.executable, "-m", "tpuctl", *command]
        self.process = subprocess.Popen(words, stdin=writer, stdout=writer, stderr=writer)
        os.close(writer)
        seen = b""
        while b"step 1" not in seen:
            seen += os.read(self._reader, 1 << 16)

    def close(self) -> None:
        """Close the terminal."""
        os.close(self._reader)

    def let_run_end(self) -> None:
        """Let the script end."""
        (folder,) = Path(self._simulator.folder, "hosts").glob("*/w0/home/.tpuctl/runs/r1/1")
        (folder / "go").touch()


@pytest.mark.slow
@pytest.mark.parametrize("command", [("logs", "-f", "r1"), (*SUBMIT, "--attach"), RUN], ids=" ".join)
def test_a_terminal_that_is_closed_ends_the_command_and_not_the_run(
    tpuctl: Tpuctl, simulator: RunningSimulator, command: tuple[str, ...]
) -> None:
    """The TPU of `run --down` then has its --idle; the same command goes on."""
    if command != RUN:
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    if command[0] == "logs":
        Path("job.py").write_text(JOB)
        assert tpuctl(*SUBMIT).code == 0
    followed = Followed(simulator, *command)
    followed.close()
    assert followed.process.wait() == 130
    assert [run["state"] for run in tpuctl("runs", "--json").json["runs"]] == ["running"]
    followed.let_run_end()
    assert tpuctl("wait", "r1").code == 0
    if command == RUN:
        assert len(simulator.world.nodes.all()) == 1
        assert tpuctl(*RUN).code == 0
        assert simulator.world.nodes.all() == []


@pytest.mark.slow
def test_a_command_that_outlives_its_terminal_does_its_work_to_the_end(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    """As after `disown`: what it writes is refused (EIO), and its TPU billed on."""
    followed = Followed(simulator, *RUN, hears=False)
    followed.close()
    followed.let_run_end()
    assert followed.process.wait() == 0
    assert simulator.world.nodes.all() == []
    assert Path("r1/logs/attempt-1-worker-0.log").read_text() == "step 1\nstep 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("is_attached", [False, True])
def test_a_run_goes_on_where_the_reader_of_its_log_has_gone(
    tpuctl: Tpuctl, simulator: RunningSimulator, is_attached: bool
) -> None:
    """`logs -f | head` ends at the next line; `submit --attach | head` has the run's exit code."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    Path("job.py").write_text(JOB)
    if not is_attached:
        assert tpuctl(*SUBMIT).code == 0
    command = (*SUBMIT, "--attach") if is_attached else ("logs", "-f", "r1")
    with commands.start(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as followed:
        assert followed.stdout
        assert followed.stdout.readline() == b"step 1\n"
        followed.stdout.close()
        (folder,) = Path(simulator.folder, "hosts").glob("*/w0/home/.tpuctl/runs/r1/1")
        (folder / "go").touch()
        assert followed.wait() == 0
    assert tpuctl("wait", "r1").code == 0
    assert tpuctl("logs", "r1").out == "step 1\nstep 2\n"


@pytest.mark.slow
def test_who_has_started_a_run_again_goes_on_where_the_reader_of_its_log_has_gone(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    """`logs -f | head` ended at the next line, and the TPU that it had made billed on."""
    assert tpuctl("up", "v3-8", "--spot", "--name", "n1", "--yes").code == 0
    Path("job.py").write_text(JOB)
    assert tpuctl(*SUBMIT).code == 0
    with commands.start("logs", "-f", "r1", stdout=subprocess.PIPE) as followed:
        assert followed.stdout
        assert followed.stdout.readline() == b"step 1\n"
        followed.stdout.close()
        simulator.faults.add("preemption", node="n1")
        homes = Path(simulator.folder, "hosts")
        (started,) = poll(
            lambda: list(homes.glob("*/w0/home/.tpuctl/runs/r1/2/started")) or None,
            awaiting="the second attempt", timeout=120, backoff=Backoff(0.1, 0.5),
        )  # fmt: skip
        (started.parent / "go").touch()
        assert followed.wait() == 0
    assert simulator.world.nodes.all() == []


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


def shown(*arguments: str, stdout: str | Path, stderr: str | Path) -> int:
    """Run a command with its output to two files, and return its exit code."""
    with open(os.devnull) as nothing, open(stdout, "wb") as out, open(stderr, "wb") as err:
        descriptors = [nothing.fileno(), out.fileno(), err.fileno()]
        return commands.run(("-m", "tpuctl", *arguments), os.environ, descriptors)


@FULL
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("help", "up"), "The output cannot be written: No space left on device."),
        (("config", "show"), "The output cannot be written: No space left on device."),
        (("config", "show", "--json"), "The output cannot be written: No space left on device."),
        (("frob", "--json"), "There is no command 'frob'."),
    ],
)
def test_output_to_a_full_disk_is_an_error_with_its_reason_and_no_bug(
    home: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    errors = tmp_path / "errors"
    assert shown(*arguments, stdout="/dev/full", stderr=errors) == 2
    assert f"Error: {message}" in errors.read_text()
    assert "Traceback" not in errors.read_text()


@FULL
def test_a_full_disk_for_what_is_said_besides_ends_no_command(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert shown("config", "show", "--json", stdout=output, stderr="/dev/full") == 0
    assert output.read_text().startswith("{")


@FULL
def test_a_full_disk_for_what_is_said_besides_keeps_no_node_billing(
    simulator: RunningSimulator, node: str
) -> None:
    """As `tpuctl down --yes 2>>log` in a crontab."""
    assert shown("down", node, "--yes", stdout=os.devnull, stderr="/dev/full") == 0
    assert simulator.world.nodes.all() == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(home: Path, closed: str) -> None:
    command = f'exec "$0" -m tpuctl config show --json {closed}'
    ended = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), ended.stderr
    assert (b'"schema"' in ended.stdout) == (" >&-" not in f" {closed}")


def test_a_file_that_is_opened_takes_the_place_of_no_closed_stream(home: Path) -> None:
    program = (
        "import os; from tpuctl.cli import printing; printing.open_closed_streams(); "
        "file = os.open('file', os.O_CREAT | os.O_WRONLY); os.system('echo lost; echo lost >&2'); "
        "raise SystemExit(os.fstat(file).st_size or file < 3)"
    )
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program], check=False
    )
    assert ended.returncode == 0


@pytest.mark.parametrize("arguments", [["runs"], ["runs", "--json"]], ids=" ".join)
def test_a_connection_that_breaks_is_said_though_click_takes_it_for_the_output(
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    """Without the word, `tpuctl submit --replace | tail -1` would look like a success."""

    def breaks(*_arguments: object, **_options: object) -> None:
        near, far = socket.socketpair()
        far.close()
        with near:
            near.send(b"x")

    # Google's clients and paramiko wrap such errors: the first that escapes is one to correct.
    monkeypatch.setattr("tpuctl.flows.runs.summaries.take_page", breaks)
    assert run(arguments) == 1
    written = capsys.readouterr()
    assert "a connection broke" in written.err
    assert "report" in written.err
    assert ("bug" in written.out) == ("--json" in arguments)
