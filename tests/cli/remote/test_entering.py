"""`ssh --run` and `exec --run`: a shell and a command with the code, packages and variables of a run.

Another program gets the terminal with what was printed before, and with all signals.
"""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.remote.test_exec import await_text
from tests.cli.remote.test_ssh import needs_ssh, ssh
from tests.host.worker.preparation.wheels import wheel
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.remote.ssh import hand_over
from tpuctl.errors import ConfigError
from tpuctl.host.worker.records import ENTRY_FILE

Call = Callable[..., CommandResult]
TOKEN = "hidden-from-the-disk"
TRAIN = """\
import os, time
open(os.environ["STARTED"] + os.environ["TPUCTL_WORKER"], "w").write("x")
while not os.path.exists(os.environ["END"]):
    time.sleep(0.05)
"""
SHOWN = (
    "import greeting, os, pkg\n"
    "print(greeting.WORD, pkg.WORD, os.path.relpath(os.getcwd(), os.path.dirname(pkg.__file__)),"
    " *map(os.environ.get, ('RATE', 'TOKEN', 'TPUCTL_RUN', 'TPUCTL_WORKER')))"
)
OWN = "hello from the wheel of the project ../../conf 0.5"


@pytest.fixture
def submit(command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Submits a module of a package with a wheel and variables; returns the file that ends it."""
    project, end = tmp_path / "project", tmp_path / "end"
    wheel(project / "wheels", "greeting")
    files = {
        "pyproject.toml": '[project]\nname = "pkg"\nversion = "1"\ndependencies = ["greeting"]\n'
        '[tool.tpuctl]\nframework = "jax"\nenv = { RATE = "0.5" }\n',
        "src/pkg/__init__.py": "WORD = 'of the project'\n",
        "src/pkg/train.py": TRAIN,
        "conf/a.yaml": "",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    monkeypatch.chdir(project / "conf")
    monkeypatch.setenv("TOKEN", TOKEN)

    def start(run: str, node: str, workers: int = 1) -> Path:
        result = command(
            "submit", "--name", run, "--tpu", node, "--secret", "TOKEN", "--wheelhouse", "../wheels",
            "--store-env", "END", "--env", f"END={end}", "--env", f"STARTED={tmp_path}/started-",
            "-m", "pkg.train",
        )  # fmt: skip
        assert result.code == 0, result.err
        for worker in range(workers):
            await_text(tmp_path / f"started-{worker}", "x")
        return end

    yield start
    end.touch()


@needs_ssh
def test_a_command_and_a_shell_have_the_code_the_packages_and_the_variables(
    submit: Callable[..., Path], command: Call, remote: RunningSimulator
) -> None:
    end = submit("r1", "n1")
    shown = command("exec", "--run", "r1", "--", "python", "-c", SHOWN)
    assert (shown.code, shown.out) == (0, f"{OWN} {TOKEN} r1 0\n"), shown.err
    line = ssh(command, "--run", "r1", "--", "-q", "echo $RATE $TOKEN; python -m greeting && exit 4")
    assert (line.returncode, line.stdout) == (4, f"0.5 {TOKEN}\n"), line.stderr
    plan = command("ssh", "--run", "r1", "--dry-run", "--json").json["command"]
    typed = f"python -c {shlex.quote(SHOWN)}\nexit 5\n"
    shell = subprocess.run(plan, input=typed, capture_output=True, text=True, timeout=60)
    assert (shell.returncode, shell.stdout) == (5, f"{OWN} {TOKEN} r1 0\n"), shell.stderr
    found = (Path(top, name) for top, _, names in os.walk(Path(remote.folder, "hosts")) for name in names)
    files = [path for path in found if "proc" not in path.parts and path.is_file()]  # processes come and go
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.name == ENTRY_FILE} == {0o600}
    end.touch()
    assert command("wait", "r1").code == 0


@pytest.mark.slow
def test_a_command_outlives_the_run_and_later_ones_lack_what_is_on_no_disk(
    submit: Callable[..., Path], command: Call, starting: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    end = submit("r2", "n1")
    waiting = f"echo x > {tmp_path}/in; while [ ! -e {tmp_path}/out ]; do sleep 0.05; done; echo $TOKEN"
    inside = starting("exec", "--run", "r2", "--", waiting)
    await_text(tmp_path / "in", "x\n")
    end.touch()
    assert command("wait", "r2").code == 0
    (tmp_path / "out").touch()
    assert inside.communicate(timeout=60)[0] == f"{TOKEN}\n"
    later = command("exec", "--run", "r2", "--", "python", "-c", SHOWN)
    assert (later.code, later.out) == (0, f"{OWN} None r2 0\n"), later.err
    assert "not set, as only the running program has the values: STARTED, TOKEN" in later.err


@pytest.mark.slow
def test_on_several_hosts_each_is_its_own_worker(
    submit: Callable[..., Path], command: Call, remote: RunningSimulator
) -> None:
    end = submit("r3", "pair", workers=2)
    both = command("exec", "--run", "r3", "--worker", "all", "--", "echo $TPUCTL_WORKER")
    assert (both.code, sorted(both.out.splitlines())) == (0, ["[0] 0", "[1] 1"]), both.err
    assert ssh(command, "--run", "r3", "--worker", "1", "--", "echo $TPUCTL_WORKER").stdout == "1\n"
    several = command("ssh", "--run", "r3", "--worker", "all")
    assert (several.code, "2 workers are named" in several.err) == (2, True)
    end.touch()
    assert command("wait", "r3").code == 0


@pytest.mark.slow
def test_what_cannot_be_entered_is_a_sentence(
    submit: Callable[..., Path], command: Call, remote: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (submit("r4", "n1")).touch()
    assert command("wait", "r4").code == 0
    named = command("exec", "n1", "--run", "r4", "--", "true")
    assert (named.code, "A run is on its own TPU." in named.err) == (2, True)
    assert command("ssh", "--run", "r9").code == 4
    wrong = command("ssh", "--run", "r4", "--dry-run", "--", "-Z")
    assert (wrong.code, "option -Z not recognized" in wrong.err) == (2, True)
    absent = command("exec", "--run", "r4", "--", "no-such-program", "x")
    assert (absent.code, "no-such-program: No such file" in absent.err) == (127, True)
    monkeypatch.setenv("TPUCTL_SSH_USER", "grace")
    other = command("exec", "--run", "r4", "--", "true")
    assert (other.code, "TPUCTL_SSH_USER=" in other.err) == (4, True), other.err
    monkeypatch.delenv("TPUCTL_SSH_USER")
    (entry,) = Path(remote.folder, "hosts").glob(f"*/w0/home/.tpuctl/runs/r4/1/{ENTRY_FILE}")
    entry.unlink()
    deleted = command("exec", "--run", "r4", "--", "true")
    assert (deleted.code, ".tpuctl/runs/r4/1" in deleted.err) == (94, True), deleted.err


@pytest.mark.slow
def test_a_node_of_the_same_name_is_another_one(
    submit: Callable[..., Path], command: Call, remote: RunningSimulator
) -> None:
    (submit("r5", "n1")).touch()
    assert command("wait", "r5").code == 0
    assert command("down", "n1", "--yes").code == 0
    up = ("up", "v3-8", "--framework", "jax", "--zone", "europe-west4-a", "--name", "n1", "--yes")
    for made in ((), up):
        assert not made or command(*made).code == 0
        gone = command("exec", "--run", "r5", "--", "true")
        assert (gone.code, "'n1', on which attempt 1 of run 'r5' was, is gone" in gone.err) == (4, True), (
            gone.err
        )


def test_the_program_comes_after_what_was_printed_and_hears_every_signal() -> None:
    code = (
        "import sys\nfrom tpuctl.cli.remote.ssh import hand_over\n"
        "sys.stdout.write('first\\n'); sys.stderr.write('said ')\n"
        "hand_over(['/bin/sh', '-c', 'echo second; echo more >&2; kill -PIPE $$; echo alive'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "first\nsecond\n"
    assert result.stderr == "said more\n"
    assert result.returncode == -signal.SIGPIPE


@pytest.fixture
def _signals() -> Iterator[None]:
    names = (signal.SIGPIPE, signal.SIGXFSZ)
    before = [signal.getsignal(number) for number in names]
    yield
    for number, handler in zip(names, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_program_that_cannot_be_run_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        hand_over(["/nowhere/ssh", "n1"])
    assert refused.value.message == "/nowhere/ssh cannot be run: No such file or directory."
