"""A project's file is used only if no other user of the machine controls it, and there is a way out.

TOML from elsewhere is refused with one error, whatever is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuctl.config import Config, files, load
from tpuctl.config.files import MOST_BYTES, user_file, user_ids
from tpuctl.errors import ConfigError

NOBODY = 65534
CALLER = 12345
"""The id of a user who runs sudo."""
Load = Callable[[], Config]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user who has configured nothing."""
    return {"HOME": str(home)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's file in the folder above the working folder."""
    path = tmp_path / "tpuctl.toml"
    path.write_text('zone = "us-east1-d"\n')
    return path


@pytest.fixture
def read(environ: dict[str, str], tmp_path: Path) -> Load:
    """Load the configuration of this test's environment and working folder."""
    return lambda: load({}, environ, tmp_path / "work")


def user(environ: dict[str, str], text: str) -> Path:
    path = user_file(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestOwner:
    @as_root
    def test_a_file_of_another_user_is_refused_with_the_ways_out(self, read, project, environ) -> None:
        os.chown(project, NOBODY, NOBODY)
        with pytest.raises(
            ConfigError, match=rf"^{project} belongs to the user \w+, so tpuctl does"
        ) as refused:
            read()
        assert f"set TPUCTL_CONFIG={project}, or" in refused.value.hint
        assert f'safe_folders = ["{project.parent}"] in {user_file(environ)}' in refused.value.hint
        assert "TPUCTL_CONFIG=/dev/null" in refused.value.hint

    @as_root
    def test_it_is_refused_before_its_content_is_looked_at(self, read, project) -> None:
        project.write_bytes(b"\x1b]0;title\x07 no TOML")
        os.chown(project, NOBODY, NOBODY)
        with pytest.raises(ConfigError, match="belongs to"):
            read()

    @as_root
    def test_a_nearer_file_of_ones_own_hides_it(self, read, project, tmp_path) -> None:
        os.chown(project, NOBODY, NOBODY)
        (tmp_path / "work/tpuctl.toml").write_text('zone = "us-central2-b"\n')
        assert read().get("zone") == "us-central2-b"

    @as_root
    def test_a_file_in_a_folder_of_another_user_is_refused(self, read, project) -> None:
        os.chown(project.parent, NOBODY, NOBODY)
        with pytest.raises(ConfigError, match=rf"^{project.parent} belongs to"):
            read()

    @as_root
    def test_a_link_of_another_user_is_refused(self, read, project, tmp_path) -> None:
        link = tmp_path / "work/tpuctl.toml"
        link.symlink_to(project)
        assert read().get("zone") == "us-east1-d"
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
        with pytest.raises(ConfigError, match=rf"^{link} belongs to"):
            read()

    @as_root
    def test_a_link_to_a_file_of_another_user_is_refused(self, read, project, tmp_path) -> None:
        link = tmp_path / "work/tpuctl.toml"
        link.symlink_to(project)
        os.chown(project, NOBODY, NOBODY)
        with pytest.raises(ConfigError, match=rf"^{link} belongs to"):
            read()

    @as_root
    def test_an_owner_without_a_name_is_named_by_the_id(self, read, project) -> None:
        os.chown(project, 3_999_999, 0)
        with pytest.raises(ConfigError, match="the user with the id 3999999"):
            read()

    @as_root
    def test_behind_sudo_the_files_of_the_caller_are_ones_own(self, read, project, environ) -> None:
        os.chown(project, CALLER, CALLER)
        with pytest.raises(ConfigError, match="belongs to"):
            read()
        environ["SUDO_UID"] = str(CALLER)
        assert read().get("zone") == "us-east1-d"

    @pytest.mark.parametrize("caller", ["", "-1", "12x", "١", " 0"])
    def test_a_malformed_id_of_a_caller_counts_for_nothing(self, caller) -> None:
        assert user_ids({"SUDO_UID": caller}) == {os.geteuid()}

    def test_the_variable_of_sudo_counts_for_root_alone(self, monkeypatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: CALLER)  # no test can become another user and return
        assert user_ids({"SUDO_UID": "77"}) == {CALLER}


class TestModes:
    def test_a_file_that_everybody_can_write_is_refused(self, read, project) -> None:
        project.chmod(0o646)
        with pytest.raises(
            ConfigError, match=rf"^Every user of this machine can write to {project},"
        ) as refused:
            read()
        assert f"'chmod o-w {project}'" in refused.value.hint
        assert f"TPUCTL_CONFIG={project}" in refused.value.hint

    def test_a_folder_in_which_everybody_can_replace_it_is_refused(self, read, project) -> None:
        project.parent.chmod(0o777)
        with pytest.raises(ConfigError, match=rf"^Every user of this machine can write to {project.parent},"):
            read()

    def test_a_folder_such_as_tmp_is_accepted(self, read, project) -> None:
        project.parent.chmod(0o1777)
        assert read().get("zone") == "us-east1-d"

    def test_a_group_may_write_as_in_a_teams_folder(self, read, project) -> None:
        project.chmod(0o664)
        project.parent.chmod(0o2775)
        assert read().get("zone") == "us-east1-d"


class TestWaysOut:
    def test_a_named_file_is_used_in_the_place_of_the_nearest(self, read, project, environ, tmp_path) -> None:
        named = tmp_path / "other.toml"
        named.write_text('zone = "us-central2-b"\nnetwork = "mine"\n')
        named.chmod(0o666)
        environ["TPUCTL_CONFIG"] = str(named)
        assert (read().get("zone"), read().values["zone"].origin) == ("us-central2-b", str(named))
        assert read().files == (str(named),)

    def test_a_relative_name_starts_at_the_working_folder_and_a_tilde_at_home(
        self, read, project, environ, home, monkeypatch
    ) -> None:
        environ["TPUCTL_CONFIG"] = "../tpuctl.toml"
        assert read().get("zone") == "us-east1-d"
        (home / "mine.toml").write_text('zone = "us-central2-b"\n')
        environ["TPUCTL_CONFIG"] = "~/mine.toml"
        assert read().get("zone") == "us-central2-b"

    def test_the_empty_device_is_no_file(self, read, project, environ) -> None:
        environ["TPUCTL_CONFIG"] = "/dev/null"
        assert read().values["zone"].origin == "default of the simulator"

    def test_a_named_file_that_does_not_exist_is_an_error(self, read, environ) -> None:
        environ["TPUCTL_CONFIG"] = "/no/such/file"
        with pytest.raises(ConfigError, match="/no/such/file cannot be read: No such file"):
            read()

    @pytest.mark.parametrize("depth", ["itself", "above"])
    def test_a_safe_folder_may_hold_files_of_everybody(self, read, project, environ, depth) -> None:
        project.chmod(0o666)
        folder = project.parent if depth == "itself" else project.parent.parent
        path = user(environ, f'safe_folders = ["/elsewhere", "{folder}"]\n')
        assert read().get("zone") == "us-east1-d"
        assert read().files == (str(project), str(path))

    def test_a_folder_whose_name_begins_alike_is_not_safe(self, read, project, environ) -> None:
        project.chmod(0o666)
        user(environ, f'safe_folders = ["{str(project.parent)[:-1]}", "{project.parent}/work"]\n')
        with pytest.raises(ConfigError, match="Every user"):
            read()

    def test_a_link_out_of_a_safe_folder_is_not_safe(self, read, project, environ, tmp_path) -> None:
        (tmp_path / "work/tpuctl.toml").symlink_to(project)
        project.chmod(0o666)
        user(environ, f'safe_folders = ["{tmp_path}/work"]\n')
        with pytest.raises(ConfigError, match="Every user"):
            read()

    @pytest.mark.parametrize("name", ["safe_folders", "python_archives"])
    def test_a_projects_file_cannot_say_whom_to_trust(self, read, project, name) -> None:
        project.write_text(f'\n{name} = "any"\n')
        with pytest.raises(ConfigError, match=rf"^{project}, line 2 sets '{name}', which only your own"):
            read()

    def test_the_users_file_says_which_pythons_hosts_may_run(self, read, environ) -> None:
        user(environ, f'target = "gcp"\npython_archives = {{ "3.12.8" = "{"a" * 64}" }}\n')
        assert read().get("python_archives") == f"3.12.8={'a' * 64}"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('"/srv"', "has to be a list of folders"), ("[3]", "has to be a list of folders"),
            ('["srv"]', "names srv, which does not begin with / or ~"),
        ],
    )  # fmt: skip
    def test_a_malformed_list_is_an_error(self, read, environ, text, words) -> None:
        path = user(environ, f"safe_folders = {text}\n")
        with pytest.raises(ConfigError, match=rf"^{path}: 'safe_folders' {words}"):
            read()


class TestSearch:
    def test_nothing_above_the_home_folder_is_read(self, project, environ, home) -> None:
        folder = home / "work/deep"
        folder.mkdir(parents=True)
        assert load({}, environ, folder).files == ()
        (home / "tpuctl.toml").write_text('zone = "us-central2-b"\n')
        assert load({}, environ, folder).files == (str(home / "tpuctl.toml"),)

    def test_a_home_behind_a_link_is_the_home(self, project, environ, home, tmp_path) -> None:
        (tmp_path / "link").symlink_to(home)
        environ["HOME"] = str(tmp_path / "link")
        assert load({}, environ, home).files == ()

    def test_nothing_above_a_file_system_is_read(self, project, read, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "work")  # mounting takes root
        assert read().files == ()

    def test_a_pipe_of_that_name_is_no_file(self, read, tmp_path) -> None:
        os.mkfifo(tmp_path / "work/tpuctl.toml")
        assert read().files == ()

    def test_a_huge_file_is_refused(self, read, project) -> None:
        project.write_bytes(b"#" * (MOST_BYTES + 1))
        with pytest.raises(ConfigError, match="is larger than 64 KiB"):
            read()

    def test_an_endless_device_is_refused(self, read, environ) -> None:
        environ["TPUCTL_CONFIG"] = "/dev/zero"
        with pytest.raises(ConfigError, match="is larger than 64 KiB"):
            read()


LONG = ".a" * 16_000


def test_content_is_that_of_the_text() -> None:
    text = "a.'b.c'.d = 1\n[t]\nx = " + repr(LONG.replace(".", " .. "))
    assert files.decode(text)["a"] == {"b.c": {"d": 1}}
    assert files.decode("a = 1\n", dict[str, int]) == {"a": 1}
    assert files.decode(f"a{'.a' * (files.MOST_PARTS - 1)} = 1\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"a{LONG} = 1", "a key has more than 64 parts"),
        (f"[a{LONG.replace('.', ' . ')}]", "a key has more than 64 parts"),
        ("x = {a" + LONG.replace("a", "'a'") + " = 1}", "a key has more than 64 parts"),
        ("a = " + "[" * 30_000, "it is nested too deeply"),
        ("a = " + "9" * 5000, "limit"),
        ("a = ", "Invalid value"),
        ("a = 'x'", "Expected `int`"),
    ],
)
def test_anything_else_is_one_error(text: str, words: str) -> None:
    """A key of so many parts took gigabytes."""
    with pytest.raises(files.TomlError, match=words):
        files.decode(text, dict[str, int])
