"""Each command runs where all that it reads is hostile: nothing steers the terminal or leaves the folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.test_help import LEAVES
from tests.conftest import FOREIGN
from tests.hostile.site import VISIBLE, WORD, HostileSite
from tests.hostile.text import ESCAPES, steers
from tests.running_simulator import RunningSimulator

OWN_SEQUENCES = re.compile(r"\x1b\[(\?25[lh]|[0-9;]*m|2K|1A)|\r")
"""Colours, and those that redraw a progress line."""
LOGS = ("logs", "sim logs")
"""They show lines."""
HIDDEN_PATHS = ("state", "home")
"""Folders beside the working folder where tpuctl keeps its own files."""


@dataclass(frozen=True)
class Call:
    """A call of a command; `shows` says whether hostile text is shown, in its visible form."""

    command: str
    arguments: tuple[str, ...] = ()
    shows: bool = True
    fault: str = ""
    """A method whose calls fail with a hostile message."""
    variables: dict[str, str] = field(default_factory=dict)


def call(command: str, *arguments: str, shows: bool = True, fault: str = "", **variables: str) -> Call:
    return Call(command, arguments, shows, fault, variables)


CALLS = (
    call("up", "v3-8", "--name", "n1"),
    call("up", "v3-8", "--name", WORD, "--yes"),
    call("up", "v3-8", "--name", "n2", "--yes", fault="CreateNode"),
    call("up", WORD),
    call("ls"),
    call("ls", fault="ListNodes"),
    call("ls", "--zone", WORD),
    call("ls", "--all-users"),
    call("describe", "n1"),
    call("describe", WORD),
    call("why", "n1"),
    call("why", WORD),
    call("down", "n1", "--dry-run", shows=False),
    call("down", "n1"),
    call("down", WORD, "--yes"),
    call("stop", "n1"),
    call("stop", "n1", "--yes", fault="StopNode"),
    call("stop", WORD, "--yes"),
    call("start", "n1", "--dry-run", shows=False),
    call("start", WORD, "--yes"),
    call("wait", WORD),
    call("forward", WORD, "0:1"),
    call("forward", f"1{WORD}"),
    call("ssh", WORD, "--dry-run"),
    call("ssh-config", "n1", shows=False),
    call("ssh-config", WORD),
    call("exec", WORD, "--", "true"),
    call("cp", f"{WORD}:x", "."),
    call("extend", "n1", "2h", "--dry-run", shows=False),
    call("extend", WORD, "2h"),
    call("reap", "--dry-run", shows=False),
    call("reap", "--all-users", "--yes", fault="ListNodes"),
    call("drill", "n1", "--dry-run", shows=False),
    call("drill", "n1", "--owner", WORD),
    call("drill", WORD, "--yes"),
    call("zones", WORD),
    call("zones", "v3-8", fault="ListAcceleratorTypes"),
    call("types", "--zone", WORD),
    call("types", fault="ListLocations"),
    call("runtimes", fault="ListRuntimeVersions"),
    call("cost", "--since", WORD),
    call("python", WORD),
    call("cost"),
    call("price", WORD),
    call("price", "v3-8", shows=False),
    call("data dataflow", "again", f"gs://{WORD}/images", "--region", "europe-west4"),
    call("data describe", "rows"),
    call("data describe", "bad", shows=False),
    call("data describe", WORD),
    call("data diff", "rows", "pictures"),
    call("data diff", "rows", WORD),
    call("data fetch", WORD),
    call("data fetch", "mnist", "--from", WORD),
    call("data head", "rows"),
    call("data head", "pictures", "--image", "sheet.png", shows=False),
    call("data head", "rows", "--split", WORD),
    call("data ls"),
    call("data plan", "again", "rows.jsonl", shows=False),
    call("data plan", "again", "images", "--skip-bad"),
    call("data plan", WORD, WORD),
    call("data pull", "rows", "--to", "out/rows", shows=False),
    call("data pull", WORD),
    call("data rm", WORD, "--yes"),
    call("data rm", "rows/1.0.0", "--dry-run", shows=False),
    call("data sample", "rows", "--to", "out/sample", shows=False),
    call("data sample", WORD, "--dry-run"),
    call("data split", "rows", "--splits", "train=0.5,test=0.5", "--dry-run", shows=False),
    call("data split", "rows", "--splits", WORD),
    call("data stats", "rows"),
    call("data stats", WORD),
    call("data upload", "again", "images", "--skip-bad", "--keep", "out/kept"),
    call("data upload", WORD, "images"),
    call("data verify", "rows", "--deep", shows=False),
    call("data verify", WORD),
    call("run", "header.py", "--up", "v3-8"),
    call("run", f"{WORD}.py", "--up", "v3-8", "--dry-run"),
    call("run", "job.py", "--up", WORD),
    call("run", "job.py", "--name", "r1"),
    call("run", "job.py", "--up", "v3-8", "--name", "n1", "--dry-run"),
    call("submit", "header.py"),
    call("submit", f"{WORD}.py", "--dry-run"),
    call("submit", "job.py", "--name", WORD),
    call("submit", "job.py", "--env", WORD, shows=False),
    call("submit", "job.py", "--dataset", WORD),
    call("submit", "job.py", "--tpu", WORD),
    call("resubmit", "r1", "--dry-run", shows=False),
    call("resubmit", WORD),
    call("resubmit", "r1", "--on", WORD, "--", WORD, shows=False),
    call("diff", "r1", "r2"),
    call("diff", "r1", WORD),
    call("logs", "r1"),
    call("logs", "r2", "-f"),
    call("logs", "r2", "--worker", "0", "--tail", "9"),
    call("logs", WORD),
    call("runs"),
    call("runs", "--tag", WORD),
    call("runs gc", "--keep", "0", "--all-users"),
    call("tag", "r1", shows=False),
    call("tag", "r1", WORD),
    call("note", "r2", WORD, shows=False),
    call("verify", "hostile", shows=False),
    call("verify", WORD),
    call("export", "r2", "--to", "out/r2.tar.gz", shows=False),
    call("export", "r1", "--to", "out/r1.tar.gz", shows=False),
    call("export", WORD),
    call("rm", "r2"),
    call("rm", "r1"),
    call("rm", WORD, "--yes"),
    call("watch", "r1", "--once"),
    call("watch", WORD),
    call("cancel", "r1", "--yes"),
    call("cancel", "r2", "--dry-run", shows=False),
    call("cancel", WORD),
    call("wait", "r1"),
    call("pull", "r1", "--to", "out/r1"),
    call("pull", "r3", "--to", "out/r3"),
    call("pull", WORD),
    call("init", "--from-terraform", "outputs.json"),
    call("init", "--project", WORD),
    call("init", "--from-terraform", WORD),
    call("config show", TPUCTL_ZONE=WORD, TPUCTL_BUCKET=WORD),
    call("config show", TPUCTL_CONFIG="hostile/tpuctl.toml"),
    call("doctor", fault="ListNodes"),
    call("doctor", TPUCTL_ZONE=WORD),
    call("sim env", "--json", shows=False),
    call("sim env", "--unset", shows=False),
    call("sim events"),
    call("sim fault add", "error", "--method", "GetOperation", "--message", WORD, "--count", "1"),
    call("sim fault add", WORD),
    call("sim fault ls", fault="ListRuntimeVersions"),
    call("sim fault rm", WORD),
    call("sim logs"),
    call("sim status", shows=False),
    call("sim status", TPUCTL_STATE=WORD, shows=False),
    call("sim start", "--scenario", "scenario.toml", TPUCTL_STATE=WORD),
    call("sim stop", TPUCTL_STATE=WORD, shows=False),
    call("sim reset", TPUCTL_STATE=WORD),
    call("help", WORD),
    call("completion", WORD),
)  # fmt: skip
"""Calls that hostile text reaches: from the bucket, the API, files, the environment and arguments."""
IDS = [f"{number} {call.command}" for number, call in enumerate(CALLS)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileSite]:
    """One for all calls: none of them removes what another needs."""
    top = tmp_path_factory.mktemp("hostile")
    for name in ("home", "work", "state"):
        (top / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        patch.setenv("HOME", str(top / "home"))
        patch.setenv("TPUCTL_STATE", str(top / "state"))
        patch.chdir(top / "work")
        simulator = RunningSimulator(top / "state" / "sim")
        try:
            hostile = HostileSite(simulator, top / "work")
            hostile.plant_node()
            assert hostile.call("data", "upload", "rows", "rows.jsonl", "--label", "label")[0] == 0
            assert hostile.call("data", "upload", "pictures", "images", "--skip-bad")[0] == 0
            with (top / "state" / "sim" / "simulator.log").open("a") as log:
                log.write(f"{WORD}\n")
            yield hostile
        finally:
            simulator.close()


def files(folder: Path) -> set[str]:
    """The files beside those that tpuctl keeps for itself."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return {os.fspath(path) for path in paths if path.parts[0] not in HIDDEN_PATHS}


def test_every_command_is_called() -> None:
    assert {call.command for call in CALLS} == {" ".join(path) for path, _ in LEAVES}


@pytest.mark.parametrize("hostile", CALLS, ids=IDS)
def test_nothing_steers_a_pipe_or_a_terminal(site: HostileSite, hostile: Call) -> None:
    arguments = (*hostile.command.split(), *hostile.arguments)
    before = files(site.folder.parent)
    if hostile.fault:
        site.simulator.faults.add("error", method=hostile.fault, code="INTERNAL", message=WORD)
    try:
        pauses = not hostile.fault
        code, output = site.call(*arguments, pauses=pauses, **hostile.variables)
        shown = site.call_in_terminal(*arguments, pauses=pauses, **hostile.variables)
    finally:
        site.simulator.faults.clear()
    text = output.decode()
    assert code not in (-1, 1), text
    assert "a bug in tpuctl" not in text + shown
    assert "Traceback" not in text + shown
    assert not steers(text.replace("\n", "").replace("\t", ""))
    assert hostile.command in LOGS or "\nError: forged" not in text + shown
    assert not steers(OWN_SEQUENCES.sub("", shown).replace("\n", "").replace("\t", ""))
    assert (VISIBLE in text or json.dumps(ESCAPES["title"])[1:-1] in text) == hostile.shows
    written = files(site.folder.parent) - before
    assert {path for path in written if not path.startswith(("work/out/", "work/sheet.png"))} == set()
    assert not [path for path in written if "/.git" in path.lower()]


AS_JSON = [
    (number, call)
    for number, call in enumerate(CALLS)
    if any("--json" in option.opts for path, command in LEAVES for option in command.params
           if " ".join(path) == call.command) and "--json" not in call.arguments
]  # fmt: skip


@pytest.mark.parametrize("hostile", [call for _, call in AS_JSON], ids=[IDS[number] for number, _ in AS_JSON])
def test_json_holds_the_text_and_no_control_character(site: HostileSite, hostile: Call) -> None:
    arguments = (*hostile.command.split(), "--json", *hostile.arguments)  # before the words after --
    code, output = site.call(*arguments, **hostile.variables)
    text = output.decode()
    assert code not in (-1, 1), text
    assert not steers(text.replace("\n", "").replace("\t", ""))
    assert "{" in text, code
    assert json.loads(re.search(r"^\{.*?^\}$|^\{.*?\}$", text, re.DOTALL | re.MULTILINE)[0])  # type: ignore[index]


MODULES = ("json", "tomllib", "msgspec", "click", "tpuctl", "sitecustomize", "usercustomize")


def test_no_module_of_the_working_folder_is_imported(node: str, tmp_path: Path) -> None:
    """A project from elsewhere has some; `python -m` puts its folder first, so that this test can fail."""
    for name in MODULES:
        Path(f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    Path("job.py").write_text('# /// script\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nimport json\n')
    words = ("submit", "job.py", "--dry-run")
    script = [Path(sys.executable).with_name("tpuctl"), *words]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, "bundles/" in ended.stdout) == (0, True), ended.stderr
    assert not (tmp_path / "executed").exists()
    subprocess.run([sys.executable, "-m", "tpuctl", *words], capture_output=True, timeout=120, check=False)
    assert (tmp_path / "executed").exists()
