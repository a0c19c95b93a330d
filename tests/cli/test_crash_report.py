"""The report of a bug is private to its user and holds no value of a variable and no secret argument."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.masking.samples import TOKENS
from tpuctl.cli.main import run

TOKEN = TOKENS["a GitHub token"][0]
SECRETS = ["hunter2", "pw1", "inherited-value", "http://x/?k=v", TOKEN, "--dashed", "of-the-shell"]
ARGUMENTS = [
    "submit", "job.py", "--env", "API_KEY=hunter2", "--env=PIN=pw1", "--env", "TOKEN", "--env", "A=http://x/?k=v",
    "--env", "B=--dashed", "--secret", "WORD", "--", "--epochs", "3", "--x", TOKEN,
]  # fmt: skip


@pytest.fixture
def bug(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A command line that meets a bug; what it raises quotes every secret."""

    def raises(*_arguments: object, **_options: object) -> None:
        local = f"a local variable: {SECRETS}"
        try:
            raise KeyError(SECRETS[0])
        except KeyError as error:
            error.add_note(f"a note on {SECRETS[1]}")
            raise RuntimeError(f"{len(local)} cannot read {' and '.join(SECRETS)}\nAUTH: {TOKEN}") from error

    # No input is known that meets a bug: the first that does is one to correct.
    monkeypatch.setattr("tpuctl.cli.runs.submission_options.variables_of", raises)
    monkeypatch.setenv("TOKEN", "inherited-value")
    monkeypatch.setenv("WORD", "of-the-shell")
    Path("job.py").write_text("")
    return lambda: run(ARGUMENTS)


def reports(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state" / "crashes").iterdir())


def test_no_value_is_in_the_report_or_on_the_terminal(
    bug: Callable[[], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bug() == 1
    (path,) = reports(tmp_path)
    shown = capsys.readouterr()
    for text in (path.read_text(), shown.err, shown.out):
        assert [secret for secret in SECRETS if secret in text] == []
    text = path.read_text()
    assert "RuntimeError: 65 cannot read *** and" in text.replace(
        str(len(f"a local variable: {SECRETS}")), "65"
    )
    assert "KeyError: '***'" in text
    assert "'--env', 'API_KEY=***', '--env=PIN=***', '--env', 'TOKEN', " in text
    assert "'--', '--epochs', '3', '--x', '***'" in text
    assert "raise RuntimeError" in text, "the traceback shows lines of code"
    assert "a local variable: [" not in text
    assert f"please report it with the file {path}" in shown.err


def test_the_json_of_a_bug_holds_no_value(
    home: Path, bug: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "--json", *ARGUMENTS[1:]]) == 1
    out = capsys.readouterr().out
    assert [secret for secret in SECRETS if secret in out] == []
    assert msgspec.json.decode(out)["error"]["kind"] == "bug"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_report_and_folder_are_private(bug: Callable[[], int], tmp_path: Path, umask: int) -> None:
    earlier = os.umask(umask)
    try:
        assert bug() == 1
    finally:
        os.umask(earlier)
    (path,) = reports(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_a_folder_of_an_earlier_version_becomes_private(bug: Callable[[], int], tmp_path: Path) -> None:
    folder = tmp_path / "state" / "crashes"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    assert bug() == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_planted_link_gets_no_report_and_the_user_sees_it(
    bug: Callable[[], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "crashes").symlink_to(tmp_path / "elsewhere")
    assert bug() == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert [secret for secret in SECRETS if secret in err] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root to start")
def test_another_user_cannot_read_the_report(bug: Callable[[], int], tmp_path: Path) -> None:
    earlier = os.umask(0)
    try:
        assert bug() == 1
    finally:
        os.umask(earlier)
    (path,) = reports(tmp_path)
    for folder in (path.parents[2], *path.parents[3].parents):  # pytest's own folders are private, too
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith(("test_", "pytest-")):
            folder.chmod(0o755)
    reading = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "cat", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "LC_ALL": "C"},  # cat speaks the user's language
    )
    assert reading.returncode != 0
    assert "denied" in reading.stderr


def test_a_report_can_be_shown_on_a_terminal(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an error quotes may come from a bucket: here the sequence that writes the clipboard."""

    def raises(*_arguments: object) -> None:
        raise RuntimeError("\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e")

    monkeypatch.setattr("tpuctl.cli.runs.submission_options.variables_of", raises)  # as above
    Path("job.py").write_text("")
    assert run(["submit", "job.py"]) == 1
    (path,) = reports(tmp_path)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*path.read_text()}
    assert r"\x1b]52;c;ZXZpbA==\x07" in path.read_text()


def test_a_long_error_is_cut(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_arguments: object) -> None:
        raise RuntimeError("x" * 5_000_000)

    monkeypatch.setattr("tpuctl.cli.runs.submission_options.variables_of", raises)  # as above
    Path("job.py").write_text("")
    assert run(["submit", "job.py"]) == 1
    (path,) = reports(tmp_path)
    assert path.stat().st_size < 300_000
