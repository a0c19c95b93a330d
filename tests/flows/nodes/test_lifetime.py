"""The startup script that starts the keeper beside the user's own script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import MOST_BYTES, Lifetime, users_script


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a startup script as root's shell does, with a python3 that only says how it was called."""
    fake = folder / "bin/python3"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text('#!/bin/sh\necho "$@" >>"$HOME/keepers"\n')
    fake.chmod(0o755)
    path = folder / "startup-script"
    path.write_text(script)
    path.chmod(0o700)
    environment = {
        "HOME": str(folder),
        "TPUCTL_HOST_ROOT": str(folder),
        "PATH": f"{fake.parent}:/usr/bin:/bin",
    }
    return subprocess.run(
        [path], env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_without_an_end_the_users_script_is_sent_as_it_is() -> None:
    assert Lifetime().startup_script("#!/bin/sh\ntrue\n") == "#!/bin/sh\ntrue\n"
    assert Lifetime().startup_script("") == ""
    assert Lifetime().metadata("b") == {"tpuctl-bucket": "b"}


SCRIPTS = pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\necho 'hello' \"$0\" $(basename x)\nexit 3\n",
        "#!/usr/bin/env -S bash\nEND=1\necho hello\ncat <<'END'\nhello\nEND\nexit 3\n",
        "echo hello; exit 3",
        "#!/bin/sh\n# ümläut ${not} {a} field\necho hello\nexit 3\n",
    ],
)


def test_without_a_script_of_the_user_none_is_read_back() -> None:
    assert users_script(Lifetime(ttl=3600).startup_script("")) == ""
    assert users_script("") == ""


@SCRIPTS
def test_the_users_script_is_read_back_unchanged(script: str) -> None:
    assert users_script(Lifetime(ttl=3600).startup_script(script)) == script
    assert users_script(script) == script


@SCRIPTS
def test_the_users_script_runs_unchanged_and_its_exit_code_counts(tmp_path: Path, script: str) -> None:
    result = run(Lifetime(ttl=3600).startup_script(script), tmp_path)
    assert result.stdout.startswith("hello"), result.stderr
    assert result.returncode == 3
    assert not list(Path("/tmp").glob(f"{tmp_path.name}*"))


def test_the_keeper_is_private_to_root(tmp_path: Path) -> None:
    result = run(Lifetime(idle=600).startup_script(""), tmp_path)
    assert result.returncode == 0, result.stderr
    program = tmp_path / "run/tpuctl-keeper/keeper.zip"
    assert program.read_bytes()[:2] == b"PK"
    assert program.parent.stat().st_mode & 0o077 == 0


def test_a_keeper_that_cannot_start_does_not_stop_the_users_script(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, not a folder")
    result = run(Lifetime(ttl=3600).startup_script("#!/bin/sh\necho hello\n"), tmp_path)
    assert result.stdout == "hello\n"


def test_the_same_source_gives_the_same_script() -> None:
    assert Lifetime(ttl=3600).startup_script("") == Lifetime(ttl=3600).startup_script("")


def test_a_script_that_is_too_long_for_metadata_is_refused() -> None:
    with pytest.raises(UsageError, match="bytes with the keeper"):
        Lifetime(ttl=3600).startup_script("#" * MOST_BYTES)


def test_what_the_keeper_could_not_bring_about_is_refused() -> None:
    with pytest.raises(UsageError, match="one slice"):
        Lifetime(idle=600).check(slices=2, scopes=())
    with pytest.raises(UsageError, match="cloud-platform"):
        Lifetime(ttl=600).check(slices=1, scopes=("https://www.googleapis.com/auth/devstorage.read_only",))
    Lifetime(ttl=600).check(slices=2, scopes=("https://www.googleapis.com/auth/cloud-platform",))
    Lifetime().check(slices=2, scopes=("anything",))


YEAR = 366 * 86400
CLOUD = "https://www.googleapis.com/auth/cloud-platform"


class TestCheck:
    @pytest.mark.parametrize(
        ("lifetime", "message"),
        [
            (Lifetime(), ""), (Lifetime(ttl=60, idle=60), ""), (Lifetime(ttl=YEAR, idle=YEAR), ""),
            (Lifetime(ttl=59), "--ttl is from 60 seconds to a year."),
            (Lifetime(ttl=YEAR + 1), "--ttl is from 60 seconds to a year."),
            (Lifetime(idle=59), "--idle is from 60 seconds to a year."),
            (Lifetime(ttl=60, idle=YEAR + 1), "--idle is from 60 seconds to a year."),
        ],
    )  # fmt: skip
    def test_a_minute_is_the_shortest_and_a_year_the_longest(self, lifetime: Lifetime, message: str) -> None:
        if not message:
            lifetime.check(slices=1, scopes=())
            return
        with pytest.raises(UsageError) as error:
            lifetime.check(slices=1, scopes=())
        assert error.value.message == message
        assert error.value.hint == f"For instance {message.split()[0]} 8h."

    def test_the_keeper_of_a_slice_sees_no_other(self) -> None:
        Lifetime(ttl=60).check(slices=2, scopes=())
        with pytest.raises(UsageError, match="--idle is for one slice"):
            Lifetime(idle=60).check(slices=2, scopes=())

    @pytest.mark.parametrize("scopes", [(), (CLOUD,), ("cloud-platform",), ("storage-rw", "cloud-platform")])
    def test_it_needs_the_scope_by_which_it_deletes(self, scopes: tuple[str, ...]) -> None:
        Lifetime(ttl=60).check(slices=1, scopes=scopes)

    def test_without_that_scope_it_is_refused(self) -> None:
        Lifetime().check(slices=1, scopes=("storage-rw",))
        for lifetime in (Lifetime(ttl=60), Lifetime(idle=60)):
            with pytest.raises(UsageError, match="need the scope cloud-platform"):
                lifetime.check(slices=1, scopes=("storage-rw",))


class TestMetadata:
    BOTH = Lifetime(ttl=3600, idle=600)

    def test_it_says_both_ends_and_where_they_are_recorded(self) -> None:
        marks = {"tpuctl-ttl": "3600s", "tpuctl-idle": "600s"}
        assert self.BOTH.metadata(None) == marks
        assert self.BOTH.metadata("b") == {**marks, "tpuctl-bucket": "b"}
        assert Lifetime(idle=600).metadata("b") == {"tpuctl-idle": "600s", "tpuctl-bucket": "b"}
        assert not Lifetime()
        assert Lifetime(ttl=1)
        assert Lifetime(idle=1)

    @pytest.mark.parametrize(
        ("metadata", "missing"),
        [
            ({}, ("--ttl", "--idle")), ({"tpuctl-ttl": "3600s"}, ("--idle",)),
            ({"tpuctl-ttl": "3601s", "tpuctl-idle": "600s"}, ("--ttl",)),
            ({"tpuctl-ttl": "3600s", "tpuctl-idle": "600s"}, ()),
        ],
    )  # fmt: skip
    def test_what_a_node_does_not_have_is_named_by_its_option(
        self, metadata: dict[str, str], missing: tuple[str, ...]
    ) -> None:
        assert self.BOTH.missing(metadata) == missing
        assert Lifetime().missing(metadata) == ()
