"""Real shells: a line is typed, TAB is pressed, and what the shell makes of it is read."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.completion.answer import ListedNames
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load

Tpuctl = Callable[..., CommandResult]
DEADLINE = 60.0
START = {
    # shell: the command that starts it without the user's files, and what it reads first
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(tpuctl completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u; eval "$(tpuctl completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "tpuctl completion fish | source"),
}


class Shell:
    """An interactive shell in a pseudo-terminal."""

    def __init__(self, name: str) -> None:
        command, setup = START[name]
        leader, follower = pty.openpty()
        environment = {
            **os.environ,
            "TERM": "dumb",
            "PS1": "> ",
            "PATH": f"{_programs()}:{os.environ['PATH']}",
        }
        self._process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
        )
        os.close(follower)
        self._leader = leader
        self._shown = ""
        self.type(f"{setup}; echo rea''dy\n")
        self.read_until("ready")

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def read_until(self, text: str) -> str:
        """Return what is shown up to a text, without what came before."""
        deadline = time.monotonic() + DEADLINE
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            self._shown += os.read(self._leader, 1 << 16).decode(errors="replace")
        shown, _, self._shown = self._shown.partition(text)
        return shown

    def line_after(self, typed: str) -> str:
        """Return what the shell makes of a line after TAB: its words, each in angle brackets."""
        self.type(f"{typed}\t")
        self.type(" \x01printf '<%s>' \x05; echo '<en''d>'\n")
        shown = self.read_until("<end>")
        return shown.rpartition("\n<")[2].replace("tpuctl>", "", 1)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._leader)


def _programs() -> Path:
    """The folder that holds the program tpuctl of this Python."""
    return Path(sys.executable).parent


@pytest.fixture(params=START)
def shell(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    running = Shell(request.param)
    yield running
    running.close()


def words(line: str) -> list[str]:
    return [word for word in line.replace("><", "\n").strip("<>\r\n ").split("\n") if word]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("tpuctl subm", ["submit"]),
        ("tpuctl data up", ["data", "upload"]),
        ("tpuctl up v3-10", ["up", "v3-1024"]),
        ("tpuctl ls --targ", ["ls", "--target"]),
        ("tpuctl ls --zone us-south1-ai", ["ls", "--zone", "us-south1-ai1b"]),
        ("tpuctl ls --zone=us-south1-ai", ["ls", "--zone=us-south1-ai1b"]),
        ("tpuctl sim fault add preem", ["sim", "fault", "add", "preemption"]),
        ("tpuctl data fetch mni", ["data", "fetch", "mnist"]),
        ("tpuctl help data uplo", ["help", "data", "upload"]),
    ],
)
def test_tab_completes_what_is_typed(shell: Shell, typed: str, expected: list[str]) -> None:
    assert words(shell.line_after(typed)) == expected


def test_a_file_is_completed_where_one_is_meant(shell: Shell) -> None:
    Path("training_job.py").write_text("")
    Path("pictures of pets").mkdir()
    assert words(shell.line_after("tpuctl submit train")) == ["submit", "training_job.py"]
    completed = words(shell.line_after("tpuctl data upload pets pict"))
    assert [word.rstrip("/") for word in completed] == ["data", "upload", "pets", "pictures of pets"]


def test_names_are_those_that_commands_have_listed(
    simulator: RunningSimulator, tpuctl: Tpuctl, shell: Shell
) -> None:
    assert tpuctl("up", "v3-8", "--name", "my-node", "--yes").code == 0
    assert words(shell.line_after("tpuctl down my")) == ["down", "my-node"]
    assert tpuctl("down", "--yes").code == 0
    assert words(shell.line_after("tpuctl down my")) == ["down", "my"]


def test_names_from_a_bucket_cannot_do_anything(
    simulator: RunningSimulator, tpuctl: Tpuctl, bucket: Bucket, shell: Shell
) -> None:
    """None of them is offered, and nothing of them is run or shown."""
    for name in ("x$(touch evil)", "x`touch evil`", "x;touch evil", "x\x1b]52;c;ZXZpbA==\x07", "x*", "-x"):
        bucket.create(f"runs/{name}/run.json", b"{}")
    bucket.create("runs/x-plain/run.json", b"{}")
    assert tpuctl("runs").code == 0
    ListedNames(load({})).add("runs", "x-plain")
    ListedNames(load({})).add("runs", "x$(touch evil)")
    Path("x-file").write_text("")
    assert words(shell.line_after("tpuctl logs x")) == ["logs", "x-plain"]
    assert not Path("evil").exists()


def test_completion_asks_no_service_and_writes_nothing(home: Path, tmp_path: Path) -> None:
    variables = {"COMP_WORDS": "tpuctl down ", "COMP_CWORD": "2", "_TPUCTL_COMPLETE": "bash_complete"}
    result = subprocess.run(
        [sys.executable, "-m", "tpuctl"], env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert (result.stdout.strip(), result.stderr) == ("", "")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "wrong", [{"_TPUCTL_COMPLETE": "nonsense"}, {"COMP_CWORD": "x"}, {"COMP_WORDS": "'"}]
)
def test_a_wrong_question_shows_nothing(home: Path, wrong: dict[str, str]) -> None:
    variables = {"COMP_WORDS": "tpuctl ", "COMP_CWORD": "1", "_TPUCTL_COMPLETE": "bash_complete", **wrong}
    result = subprocess.run(
        [sys.executable, "-m", "tpuctl"], env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stderr == ""


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_the_script_is_printed_without_running_a_shell(tpuctl: Tpuctl, monkeypatch, shell_name: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = tpuctl("completion", shell_name)
    assert (result.code, result.err) == (0, "")
    assert "_TPUCTL_COMPLETE" in result.out


def test_completion_imports_no_client_and_no_command(home: Path) -> None:
    program = (
        "import sys\nfrom tpuctl.cli.completion.answer import answer\nanswer()\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    variables = {"COMP_WORDS": "tpuctl data ", "COMP_CWORD": "2", "_TPUCTL_COMPLETE": "bash_complete"}
    result = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = set(result.stderr.splitlines())
    assert not {"google.cloud", "grpc", "msgspec", "tpuctl.config", "tpuctl.cli.main", "numpy"} & loaded
