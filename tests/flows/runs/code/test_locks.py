"""The lock file of a header, from the laptop to the host: checked, sent with the code, enforced."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.host.worker.preparation.wheels import wheel
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.job_header import Header, ToolTable

LOCKED = Header(tpuctl=ToolTable(requirements="requirements.lock"))
SCRIPT = (
    "# /// script\n# dependencies = []\n# [tool.tpuctl]\n# requirements = \"deep/requirements.lock\"\n# ///\n"
    "from tpuctl_wheel_of_a_test import WORD\nprint(WORD)\n"
)  # fmt: skip


def test_without_a_lock_file_nothing_is_packed() -> None:
    assert bundles.files(Path(), Header()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"numpy==1\n", r"is wrong, line 1: 'numpy==1' has no hash"),
        (b"# x\n-r y\n", r"is wrong, line 2: '-r y' is not a requirement"),
        (b"\xff", "is not a text file"), (None, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_a_wrong_lock_file_is_named_with_the_command_that_makes_one(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "requirements.lock").write_bytes(content)
    with pytest.raises(UsageError, match=rf"^The lock file {tmp_path}/requirements.lock {words}") as refused:
        bundles.files(tmp_path, LOCKED)
    assert "--generate-hashes" in refused.value.hint


def test_the_lock_file_of_a_script_that_is_a_link_is_beside_the_link(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/v2.py").write_text("")
    (tmp_path / "latest.py").symlink_to("versions/v2.py")
    (tmp_path / "requirements.lock").write_text("")
    assert bundles.files(tmp_path, LOCKED) == [tmp_path / "requirements.lock"]


@pytest.mark.parametrize("target", ["/dev/null", "requirements.lock", "folder"])
def test_a_lock_file_that_is_no_file_is_not_read(tmp_path: Path, target: str) -> None:
    """Of /dev/zero there would be no end, and nothing would come of a pipe."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "requirements.lock").symlink_to(target)
    with pytest.raises(UsageError, match=r"has something else in its place|Too many levels"):
        bundles.files(tmp_path, LOCKED)


def test_packages_from_urls_are_named_without_passwords() -> None:
    header = Header(dependencies=("numpy", "own @ git+https://me:token@h.org/own.git"))
    assert bundles.direct_references(header) == ["Hosts install own @ git+https://***@h.org/own.git"]


def test_an_option_in_a_lock_file_is_refused_before_anything_is_sent(tpuctl, node) -> None:
    Path("deep").mkdir()
    Path("job.py").write_text(SCRIPT)
    Path("deep/requirements.lock").write_text("--find-links /tmp\n")
    result = tpuctl("submit", "job.py", "--name", "r1")
    assert result.code == 2
    assert "deep/requirements.lock is wrong, line 1: '--find-links" in result.err
    assert tpuctl("runs", "--json").json["runs"] == []


def test_the_lock_file_of_a_run_reaches_pip_on_the_host(tpuctl, node, tmp_path) -> None:
    """The index is the machine's own, which does not have the wheel: pip names the locked version."""
    path = wheel(tmp_path, "tpuctl_wheel_of_a_test")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    Path("deep").mkdir()
    Path("job.py").write_text(SCRIPT)
    Path("deep/requirements.lock").write_text(f"own-wheel-of-tpuctl==9.9 --hash=sha256:{digest}\n")
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    result = tpuctl("logs", "r1", "-f")
    assert "[tpuctl] installing requirements.lock" in result.out
    assert "own-wheel-of-tpuctl==9.9" in result.out
    assert "pip could not install requirements.lock" in result.err + result.out


@pytest.mark.parametrize("specifier", [">=3.99", "<3"])
def test_a_script_for_a_python_that_nobody_has_fails_with_the_way_out(tpuctl, node, specifier) -> None:
    Path("job.py").write_text(f'# /// script\n# requires-python = "{specifier}"\n# ///\nprint("never")\n')
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    result = tpuctl("logs", "r1", "-f")
    assert f"the script requires Python {specifier}, the host has 3." in result.err
    assert "put one into the bucket: tpuctl python 3.12" in result.err
    assert "never" not in result.out


def test_a_folder_of_wheels_reaches_the_host_which_installs_from_nowhere_else(tpuctl, node) -> None:
    wheel(Path("wheels"), "tpuctl_wheel_of_a_test")
    Path(".gitignore").write_text("wheels/\n*.whl\n")
    header = '# /// script\n# dependencies = ["tpuctl-wheel-of-a-test"]\n# ///\n'
    Path("job.py").write_text(f"{header}from tpuctl_wheel_of_a_test import WORD\nprint(WORD)\n")
    submitted = tpuctl("submit", "job.py", "--name", "r1", "--wheelhouse", "wheels")
    assert submitted.code == 0, submitted.err
    result = tpuctl("logs", "r1", "-f")
    assert result.out.endswith("hello from the wheel\n"), result.out
    assert "simple" not in result.out, "no index was asked"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("nothing", "is no folder with wheels"), ("empty", "is no folder with wheels"),
        (".", "is not below the script's folder"), ("..", "is not below the script's folder"),
        ("mixed", "holds notes.txt, which is no wheel"),
    ],
)  # fmt: skip
def test_another_folder_is_refused(tmp_path: Path, folder: str, words: str) -> None:
    script = tmp_path / "project/job.py"
    (tmp_path / "project/empty").mkdir(parents=True)
    for place in ("", "project", "project/mixed"):
        wheel(tmp_path / place, "tpuctl_wheel_of_a_test")
    (tmp_path / "project/mixed/notes.txt").write_text("")
    with pytest.raises(UsageError, match=words):
        bundles.wheelhouse(script.parent, (script.parent / folder).resolve())


class TestWheels:
    """A folder of wheels travels with the code."""

    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        (tmp_path / "project").mkdir()
        return tmp_path / "project/job.py"

    def refused(self, script: Path, folder: Path) -> tuple[str, str]:
        with pytest.raises(UsageError) as refused:
            bundles.wheelhouse(script.parent, folder)
        return refused.value.message, refused.value.hint

    def test_has_its_name_below_the_script(self, script: Path) -> None:
        (script.parent / "deep").mkdir()
        wheel(script.parent / "deep/wheels", "tpuctl_wheel_of_a_test")
        assert bundles.wheelhouse(script.parent, script.parent / "deep/wheels") == "deep/wheels"
        assert bundles.wheelhouse(script.parent, None) == ""

    def test_that_has_none_is_filled_by_pip(self, script: Path) -> None:
        folder = script.parent / "wheels"
        folder.mkdir()
        (folder / "notes.txt").write_text("")
        message = f"{folder} is no folder with wheels."
        assert self.refused(script, folder) == (
            message,
            f"For a host with Python 3.10: pip download --dest {folder} --only-binary=:all:"
            " --python-version 3.10 --platform manylinux2014_x86_64 PACKAGE",
        )

    def test_elsewhere_is_moved_there(self, script: Path) -> None:
        for folder in (script.parent, script.parent.parent / "wheels"):
            wheel(folder, "tpuctl_wheel_of_a_test")
            assert self.refused(script, folder) == (
                f"{folder} is not below the script's folder {script.parent}.",
                "Move it there: it travels with the code.",
            )

    def test_holds_nothing_else(self, script: Path) -> None:
        folder = script.parent / "wheels"
        wheel(folder, "tpuctl_wheel_of_a_test")
        for name in ("z.txt", "a.txt"):
            (folder / name).write_text("")
        assert self.refused(script, folder) == (
            f"{folder} holds a.txt, which is no wheel.", "Leave wheels there only.",
        )  # fmt: skip
