"""Every layer of the configuration, their order, and how each value says where it came from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl.config import Config, load
from tpuctl.config.files import OF_USER, read_file, state_folder, user_file
from tpuctl.config.settings import FORMATS, SETTINGS
from tpuctl.errors import ConfigError, UsageError

Load = Callable[..., Config]


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user who has configured nothing."""
    return {"HOME": str(home)}


@pytest.fixture
def read(environ: dict[str, str], tmp_path: Path) -> Load:
    """Load the configuration of this test's environment and working folder."""

    def call(**flags: str | None) -> Config:
        return load(flags, environ, tmp_path / "work")

    return call


def gcloud(home: Path, text: str, name: str = "default") -> Path:
    path = home / ".config/gcloud/configurations" / f"config_{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def user(environ: dict[str, str], text: str) -> Path:
    path = user_file(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def origin(config: Config, name: str) -> tuple[str | None, str]:
    return config.values[name].value, config.values[name].origin


class TestLayers:
    def test_each_layer_wins_over_all_below_it_and_is_named(self, read, environ, home, tmp_path) -> None:
        project = tmp_path / "tpuctl.toml"
        layers: list[tuple[str, str, Callable[[], object]]] = [
            ("from-gcloud", f"gcloud ({home}/.config/gcloud/configurations/config_default)",
             lambda: gcloud(home, "[compute]\nzone = from-gcloud\n")),
            ("from-sdk", "CLOUDSDK_COMPUTE_ZONE",
             lambda: environ.update(CLOUDSDK_COMPUTE_ZONE="from-sdk")),
            ("from-user", str(user_file(environ)), lambda: user(environ, 'zone = "from-user"\n')),
            ("from-file", str(project), lambda: project.write_text('zone = "from-file"\n')),
            ("from-variable", "TPUCTL_ZONE", lambda: environ.update(TPUCTL_ZONE="from-variable")),
        ]  # fmt: skip
        assert origin(read(), "zone") == ("europe-west4-a", "default of the simulator")
        for value, named, add in layers:
            add()
            assert origin(read(), "zone") == (value, named)
        assert origin(read(zone="from-flag"), "zone") == ("from-flag", "--zone")

    def test_the_project_of_the_environment_wins_over_gclouds(self, read, environ, home) -> None:
        gcloud(home, "[core]\nproject = from-gcloud\n")
        assert read().get("project") == "from-gcloud"
        environ["CLOUDSDK_CORE_PROJECT"] = "from-sdk"
        assert origin(read(), "project") == ("from-sdk", "CLOUDSDK_CORE_PROJECT")
        environ["GOOGLE_CLOUD_PROJECT"] = "from-google"
        assert origin(read(), "project") == ("from-google", "GOOGLE_CLOUD_PROJECT")

    def test_the_nearest_file_upward_counts_and_no_other(self, read, tmp_path) -> None:
        (tmp_path / "tpuctl.toml").write_text('zone = "far"\nnetwork = "far"\n')
        near = tmp_path / "work" / "tpuctl.toml"
        near.write_text('zone = "near"\n')
        assert origin(read(), "zone") == ("near", str(near))
        assert origin(read(), "network") == ("default", "default of the simulator")

    def test_a_folder_of_the_files_name_is_no_file(self, read, tmp_path) -> None:
        (tmp_path / "work" / "tpuctl.toml").mkdir()
        assert read().target == "sim"

    def test_every_setting_has_a_variable(self, read, environ) -> None:
        for name in SETTINGS:
            if name != "target":
                environ[f"TPUCTL_{name.upper()}"] = f"my-{name}"
        config = read(target="gcp")
        for name in SETTINGS:
            if name != "target":
                assert origin(config, name) == (f"my-{name}", f"TPUCTL_{name.upper()}")

    def test_what_is_empty_is_not_set(self, read, environ, tmp_path) -> None:
        (tmp_path / "tpuctl.toml").write_text('zone = "from-file"\nproject = ""\n')
        environ.update(TPUCTL_ZONE="", TPUCTL_TARGET="", GOOGLE_CLOUD_PROJECT="")
        assert origin(read(zone=None), "zone")[0] == "from-file"
        assert origin(read(zone=""), "zone")[0] == "from-file"
        assert read().target == "sim", "an empty project is none"

    def test_who_names_a_bucket_means_it_for_datasets_too(self, read, environ, tmp_path) -> None:
        path = tmp_path / "tpuctl.toml"
        path.write_text('project = "p"\nbucket = "runs"\ndata_bucket = "data"\n')
        assert origin(read(), "data_bucket") == ("data", str(path))
        environ["TPUCTL_BUCKET"] = "other"
        assert origin(read(), "data_bucket") == ("other", "TPUCTL_BUCKET")
        assert origin(read(bucket="typed"), "data_bucket") == ("typed", "--bucket")
        environ["TPUCTL_DATA_BUCKET"] = "both-set"
        assert origin(read(), "data_bucket") == ("both-set", "TPUCTL_DATA_BUCKET")

    def test_the_users_file_moves_with_xdg_config_home(self, read, environ, tmp_path) -> None:
        environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
        user(environ, 'network = "mine"\n')
        assert origin(read(), "network") == ("mine", str(tmp_path / "xdg/tpuctl/config.toml"))


class TestTarget:
    def test_it_is_the_simulator_when_nothing_is_configured(self, read) -> None:
        assert origin(read(), "target") == ("sim", "default: no project is configured")

    @pytest.mark.parametrize(
        "layer", ["flag", "TPUCTL_PROJECT", "file", "user", "GOOGLE_CLOUD_PROJECT", "gcloud"]
    )
    def test_it_is_gcp_when_any_layer_has_a_project(self, read, environ, home, tmp_path, layer) -> None:
        flags = {"project": "my-project"} if layer == "flag" else {}
        if layer == "file":
            (tmp_path / "tpuctl.toml").write_text('project = "my-project"\n')
        elif layer == "user":
            user(environ, 'project = "my-project"\n')
        elif layer == "gcloud":
            gcloud(home, "[core]\nproject = my-project\n")
        elif layer != "flag":
            environ[layer] = "my-project"
        config = read(**flags)
        assert config.target == "gcp"
        assert config.get("project") == "my-project"
        assert config.values["target"].origin == (
            f"default: a project is configured ({config.values['project'].origin})"
        )

    def test_an_explicit_target_wins_over_the_rule(self, read, environ) -> None:
        environ["GOOGLE_CLOUD_PROJECT"] = "mine"
        assert origin(read(target="sim"), "target") == ("sim", "--target")
        environ["TPUCTL_TARGET"] = "sim"
        assert origin(read(), "target") == ("sim", "TPUCTL_TARGET")

    def test_an_unknown_target_names_where_it_was_set(self, read, tmp_path) -> None:
        (tmp_path / "tpuctl.toml").write_text('target = "aws"\n')
        with pytest.raises(ConfigError, match=r"'aws' \(.*tpuctl.toml, line 1\) is not one of gcp and sim"):
            read()

    @pytest.mark.parametrize("source", ["file", "user", "google"])
    def test_the_simulator_ignores_a_real_project_and_its_bucket(
        self, read, environ, tmp_path, source
    ) -> None:
        text = 'project = "real"\nbucket = "real"\nservice_account = "real@x"\nzone = "us-east1-d"\n'
        if source == "file":
            (tmp_path / "tpuctl.toml").write_text(text)
        elif source == "user":
            user(environ, text)
        else:
            environ.update(GOOGLE_CLOUD_PROJECT="real", CLOUDSDK_COMPUTE_ZONE="us-east1-d")
        files = {"file": tmp_path / "tpuctl.toml", "user": user_file(environ)}
        named = files.get(source, "GOOGLE_CLOUD_PROJECT")
        config = read(target="sim")
        unused = f"; the simulator does not use 'real' ({named})"
        assert origin(config, "project") == ("sim-project", f"default of the simulator{unused}")
        bucket = unused if source != "google" else ""
        assert origin(config, "bucket") == ("sim-project-tpuctl", f"default of the simulator{bucket}")
        assert config.get("service_account") is None
        assert config.get("zone") == "us-east1-d", "zones exist there too"

    @pytest.mark.parametrize("source", ["file", "user"])
    def test_a_file_that_says_sim_is_for_the_simulator(self, read, environ, tmp_path, source) -> None:
        text = 'target = "sim"\nproject = "my-project"\nbucket = "my-bucket"\nservice_account = "a@b.c"\n'
        path = user(environ, text) if source == "user" else tmp_path / "tpuctl.toml"
        path.write_text(text)
        config = read()
        assert config.target == "sim"
        for name, value in (("project", "my-project"), ("bucket", "my-bucket"), ("service_account", "a@b.c")):
            assert origin(config, name) == (value, str(path))
        assert config.unused == {}

    def test_what_the_simulator_does_not_use_is_known_with_its_origin(self, read, environ, tmp_path) -> None:
        path = tmp_path / "tpuctl.toml"
        path.write_text('bucket = "real"\nzone = "us-east1-d"\nsubnetwork = "real"\n')
        environ["TPUCTL_PROJECT"] = "mine"
        config = read(target="sim")
        assert {name: (value.value, value.origin) for name, value in config.unused.items()} == {
            name: ("real", str(path)) for name in ("bucket", "data_bucket", "subnetwork")
        }
        assert read(target="sim", bucket="typed").unused.keys() == {"subnetwork"}
        assert read(target="gcp").unused == {}

    def test_the_simulator_takes_flags_and_variables_of_its_own(self, read, environ) -> None:
        environ.update(TPUCTL_BUCKET="other", TPUCTL_TARGET="sim")
        config = read(project="mine")
        assert origin(config, "bucket") == ("other", "TPUCTL_BUCKET")
        assert origin(config, "project") == ("mine", "--project")

    def test_google_cloud_has_no_default_zone_or_bucket(self, read) -> None:
        config = read(project="mine")
        assert origin(config, "zone") == (None, "not set")
        assert origin(config, "network") == ("default", "default")
        with pytest.raises(ConfigError, match="No bucket is configured") as refused:
            config.require("bucket")
        assert "TPUCTL_BUCKET" in refused.value.hint
        assert "--bucket" in refused.value.hint


class TestWindows:
    """Files that Notepad and PowerShell write."""

    def test_a_byte_order_mark_is_skipped(self, home) -> None:
        Path("tpuctl.toml").write_bytes(b'\xef\xbb\xbfzone = "us-east1-d"\n')
        assert load({}).values["zone"].value == "us-east1-d"

    def test_utf_16_is_named_as_what_it_is(self, home) -> None:
        Path("tpuctl.toml").write_text('zone = "us-east1-d"\n', encoding="utf-16")
        with pytest.raises(ConfigError, match=r"tpuctl.toml is UTF-16"):
            load({})


class TestBuckets:
    """An option and a variable that name the bucket name that of datasets, too, over what is below them."""

    @pytest.mark.parametrize("way", ["flag", "variable"])
    def test_either_way_the_datasets_are_there(self, home, monkeypatch, way) -> None:
        Path("tpuctl.toml").write_text('project = "mine-1"\nbucket = "runs"\ndata_bucket = "data"\n')
        flags = {"bucket": "other"} if way == "flag" else {}
        if way == "variable":
            monkeypatch.setenv("TPUCTL_BUCKET", "other")
        config = load(flags)
        assert (config.get("bucket"), config.get("data_bucket")) == ("other", "other")
        monkeypatch.setenv("TPUCTL_DATA_BUCKET", "own")
        assert load(flags).get("data_bucket") == "own", "named explicitly"


class TestFormats:
    """A value of any layer is checked when it is used, and its origin is named."""

    MALFORMED = (
        ("project", "My Project"), ("zone", "somewhere"), ("accelerator", "v3 8"),
        ("framework", "keras"),
        ("bucket", "bucket!"), ("data_bucket", "bucket!"),
        ("network", "my_network"), ("subnetwork", "my_network"),
        ("subnetworks", "europe-west4"), ("external_ips", "maybe"), ("iap", "auto"),
        ("host_keys", "any"), ("python_archives", "3.12=x"), ("cross_region", "maybe"),
        ("restarts", "often"), ("restarts_on_failure", "unlimited"),
        ("service_account", "tpu"), ("ssh_user", "ada lovelace"), ("owner", "ada lovelace"),
        ("ssh_key", "-oProxyCommand=id"), ("ssh_key", "~nobody/key"),
        ("terraform", "-chdir=elsewhere"),
        ("watch_types", "v3-8 v4-8"), ("watch_zones", "europe-west4"), ("watch_max_price", "much"),
    )  # fmt: skip

    def test_every_format_is_tried(self) -> None:
        assert {name for name, _ in self.MALFORMED} == set(FORMATS)

    @pytest.mark.parametrize(("name", "value"), MALFORMED)
    def test_a_malformed_option_is_a_wrong_command_line(self, read, name, value) -> None:
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(UsageError, match=rf"^'{value}' \({flag}\) cannot be") as refused:
            read(target="gcp", **{name: value}).get(name)
        assert refused.value.hint == f"It is {FORMATS[name].description}."

    @pytest.mark.parametrize(("name", "value"), MALFORMED)
    def test_a_malformed_variable_is_a_wrong_configuration(self, read, environ, name, value) -> None:
        environ[f"TPUCTL_{name.upper()}"] = value
        with pytest.raises(ConfigError, match=rf"^'{value}' \(TPUCTL_{name.upper()}\) cannot be"):
            read(target="gcp").require(name)

    @pytest.mark.parametrize(("name", "value"), MALFORMED)
    def test_a_malformed_line_of_a_file_names_the_file(self, read, environ, tmp_path, name, value) -> None:
        path = user_file(environ) if name in OF_USER else tmp_path / "tpuctl.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{name} = "{value}"\n')
        with pytest.raises(ConfigError, match=rf"^'{value}' \({path}, line 1\) cannot be"):
            read(target="gcp").get(name)

    def test_a_malformed_property_of_gcloud_names_its_file(self, read, home) -> None:
        path = gcloud(home, "[compute]\nzone = us-central1\n")
        with pytest.raises(ConfigError) as refused:
            read().get("zone")
        assert refused.value.message == f"'us-central1' (gcloud ({path})) cannot be the zone: it is a region."

    def test_a_malformed_value_that_is_not_used_does_no_harm(self, read, environ) -> None:
        environ["TPUCTL_BUCKET"] = "bucket!"
        assert read().get("zone") == "europe-west4-a"

    @pytest.mark.parametrize("value", ["gs://my-bucket", "gs://my-bucket/", "my-bucket"])
    def test_a_bucket_is_its_name_however_it_is_written(self, read, environ, value) -> None:
        environ["TPUCTL_BUCKET"] = value
        assert (read().get("bucket"), read().get("data_bucket")) == ("my-bucket", "my-bucket")


class TestFiles:
    def test_an_unknown_key_names_the_file_and_the_nearest(self, read, tmp_path) -> None:
        path = tmp_path / "tpuctl.toml"
        path.write_text('buckett = "b"\n')
        with pytest.raises(
            ConfigError, match=f"{path}, line 1 sets 'buckett', which is not a setting"
        ) as refused:
            read()
        assert refused.value.hint == "Did you mean 'bucket'?"

    def test_a_key_that_is_near_nothing_names_all(self, read, tmp_path) -> None:
        (tmp_path / "tpuctl.toml").write_text('q = "b"\n')
        with pytest.raises(ConfigError) as refused:
            read()
        assert all(name in refused.value.hint for name in SETTINGS)

    @pytest.mark.parametrize("value", ["3", "true", '["a"]', "2026-01-01", '{ a = "b" }'])
    def test_a_value_that_is_no_string_names_the_key(self, read, tmp_path, value) -> None:
        (tmp_path / "tpuctl.toml").write_text(f"zone = {value}\n")
        with pytest.raises(ConfigError, match="'zone' has to be a string"):
            read()

    @pytest.mark.parametrize("data", [b"zone = \n", b"[", b'zone = "\xff"\n', b"\x00"])
    def test_broken_toml_names_the_file(self, read, tmp_path, data) -> None:
        path = tmp_path / "tpuctl.toml"
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=f"{path} is not valid TOML"):
            read()

    def test_the_users_file_is_checked_as_well(self, read, environ) -> None:
        path = user(environ, "zone =\n")
        with pytest.raises(ConfigError, match=str(path)):
            read()

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path) -> None:
        with pytest.raises(ConfigError, match=f"{tmp_path} cannot be read: Is a directory"):
            read_file(tmp_path)


class TestGcloud:
    def test_its_active_configuration_counts(self, read, environ, home) -> None:
        gcloud(home, "[core]\nproject = first\n")
        path = gcloud(home, "[core]\nproject = second\n[compute]\nzone = us-east1-d\n", "work")
        (home / ".config/gcloud/active_config").write_text("work\n")
        assert origin(read(), "project") == ("second", f"gcloud ({path})")
        assert read().get("zone") == "us-east1-d"
        environ["CLOUDSDK_ACTIVE_CONFIG_NAME"] = "default"
        assert origin(read(), "project")[0] == "first"

    def test_its_folder_can_be_elsewhere(self, read, environ, tmp_path) -> None:
        folder = tmp_path / "sdk"
        (folder / "configurations").mkdir(parents=True)
        (folder / "configurations/config_default").write_text("[core]\nproject = moved\n")
        environ["CLOUDSDK_CONFIG"] = str(folder)
        assert origin(read(), "project")[0] == "moved"

    @pytest.mark.parametrize("data", [b"no section\n", b"\xff\xfe\x00", b"[core]\nproject\n[core]\n", b""])
    def test_a_broken_file_of_its_own_is_as_good_as_none(self, read, home, data) -> None:
        gcloud(home, "").write_bytes(data)
        (home / ".config/gcloud/active_config").write_bytes(b"default")
        assert read().target == "sim"

    def test_a_garbled_active_config_is_as_good_as_none(self, read, home) -> None:
        gcloud(home, "[core]\nproject = mine\n")
        (home / ".config/gcloud/active_config").write_bytes(b"\xff")
        assert origin(read(), "project")[0] == "mine"

    def test_a_percent_sign_means_itself(self, read, home) -> None:
        gcloud(home, "[core]\nproject = 100%(sure)s\n")
        assert origin(read(), "project")[0] == "100%(sure)s"


class TestDefaults:
    def test_the_key_is_gclouds_when_there_is_one(self, read, home) -> None:
        assert read().values["ssh_key"].origin == "default: made when first needed"
        (home / ".ssh").mkdir()
        (home / ".ssh/google_compute_engine").write_text("")
        assert origin(read(), "ssh_key") == (
            str(home / ".ssh/google_compute_engine"), "default: the key gcloud uses",
        )  # fmt: skip

    def test_the_ssh_user_is_a_name_that_linux_accepts(self, read, monkeypatch) -> None:
        monkeypatch.setenv("LOGNAME", "Ada.Lovelace Byron")
        assert origin(read(), "ssh_user") == ("ada_lovelace_byron", "default: your user name")

    def test_state_is_under_home_unless_told_otherwise(self, tmp_path) -> None:
        assert state_folder({"HOME": "/h"}) == Path("/h/.local/state/tpuctl")
        assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/tpuctl")
        assert state_folder({"HOME": "/h", "TPUCTL_STATE": "/t"}) == Path("/t")
        assert state_folder({"HOME": "/h", "TPUCTL_STATE": ""}) == Path("/h/.local/state/tpuctl")

    @pytest.mark.parametrize("variable", ["TPUCTL_STATE", "XDG_STATE_HOME"])
    def test_a_relative_state_folder_is_in_the_working_folder(
        self, tmp_path, monkeypatch, variable: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        environ = {"HOME": "/h", variable: "s"}
        assert state_folder(environ) == tmp_path / ("s" if variable == "TPUCTL_STATE" else "s/tpuctl")
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(ConfigError, match="The working folder does not exist any more"):
            state_folder(environ)

    def test_nothing_is_read_at_import(self, home, tmp_path) -> None:
        """Broken files and values do no harm until a command asks."""
        (tmp_path / "work/tpuctl.toml").write_text("broken")
        code = "import tpuctl.config, tpuctl.cli.main; print('imported')"
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path / "work",
            check=False,
            env={
                "TPUCTL_TARGET": "nonsense",
                "HOME": str(home),
                "PYTHONPATH": str(ROOT),
            },
        )
        assert result.stdout == "imported\n", result.stderr

    def test_a_loaded_configuration_does_not_change(self, read, environ) -> None:
        config = read()
        environ["TPUCTL_ZONE"] = "later"
        assert config.get("zone") == "europe-west4-a"
        with pytest.raises(AttributeError):
            config.values = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("line", "value"), [("iap = true", "yes"), ("iap = false", "no"), ('iap = "yes"', "yes")]
)
def test_a_file_may_say_yes_by_a_boolean(home: Path, line: str, value: str) -> None:
    Path("tpuctl.toml").write_text(f'project = "a-project"\n{line}\n')
    assert load({}).get("iap") == value
    assert load({"iap": "no"}).get("iap") == "no"
    assert load({"target": "sim"}).get("iap") is None  # it is said of the real project's hosts
