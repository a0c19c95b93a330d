"""What the types of arguments and the settings of commands accept, and what is said of the rest."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from tpuctl.cli.value_types import (
    ACCELERATOR,
    ACCELERATOR_OR_GENERATION,
    DURATION,
    LOCAL_PATH,
    MOMENT,
    OUTPUT_PATH,
    SOURCE,
)
from tpuctl.errors import UsageError

OPTION = click.Option(["--to", "-t"])
ARGUMENT = click.Argument(["source"])


@pytest.mark.parametrize(
    ("typed", "name", "said"),
    [
        ("v3-8", "v3-8", ""),
        ("V3-8", "v3-8", ""),
        ("v5e-8", "v5litepod-8", "v5e-8 is v5litepod-8 in the Cloud TPU API.\n"),
    ],
)
def test_an_accelerator_has_the_name_of_the_api(
    typed: str, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (ACCELERATOR, ACCELERATOR_OR_GENERATION):
        assert kind.convert(typed, None, None) == name
        assert capsys.readouterr() == ("", said)


def test_a_generation_is_one_where_a_topology_may_follow() -> None:
    assert ACCELERATOR_OR_GENERATION.convert("v4", None, None) == "v4"
    with pytest.raises(UsageError):
        ACCELERATOR.convert("v4", None, None)


@pytest.mark.parametrize(
    ("typed", "moment"),
    [
        ("6h", timedelta(hours=6)),
        ("0s", timedelta()),
        ("2026-01-31T18:00:00Z", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        ("2026-01-31T18:00:00z", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        ("2026-01-31T18:00+02:00", datetime(2026, 1, 31, 16, tzinfo=UTC)),
        ("2026-01-31T18:00-0130", datetime(2026, 1, 31, 19, 30, tzinfo=UTC)),
        ("2199-12-31T23:59:59Z", datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_duration_from_now_or_a_time_with_its_zone(
    typed: str, moment: timedelta | datetime
) -> None:
    assert MOMENT.convert(typed, None, None) == moment


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("2026-01-31T18:00:00", "is neither a duration such as 6h nor a time such as 2026-01-31T18:00:00Z"),
        ("2026-02-31T18:00:00Z", "is neither a duration"),
        ("2200-01-01T00:00:00Z", "is neither a duration"),
        ("2026-02-01", "is neither a duration"),
        ("999999999d", "is neither a duration"),
        ("soon", "is neither a duration"),
        ("0001-01-01T00:00+01:00", "is neither a duration"),
    ],
)
def test_another_moment_is_refused(typed: str, why: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        MOMENT.convert(typed, OPTION, None)
    assert refused.value.message.startswith(f"'{typed}' {why}")
    assert refused.value.message.endswith(".")


@pytest.mark.parametrize("path", ["a", "/a/b", "a:b", "C:/x", "1s://b", "GS://b/x", "gs:/b", "./gs://b"])
def test_a_path_is_one_of_this_machine(path: str) -> None:
    assert LOCAL_PATH.convert(path, ARGUMENT, None) == Path(path)
    assert OUTPUT_PATH.convert(Path(path), None, None) == Path(path)
    assert SOURCE.convert(path, ARGUMENT, None) == str(Path(path))


@pytest.mark.parametrize(
    ("uri", "parameter", "message", "hint"),
    [
        (
            "gs://b/a x", OPTION, "gs://b/a x is in a bucket, and --to is read from this machine.",
            "Copy it first, and give the path of the copy: gcloud storage cp -r 'gs://b/a x' .",
        ),
        (
            "https://example.org/a&b", ARGUMENT,
            "https://example.org/a&b is a URL, and SOURCE is read from this machine.",
            "Copy it first, and give the path of the copy: curl -LO 'https://example.org/a&b'",
        ),
        (
            "s3+x.y-1://b", ARGUMENT, "s3+x.y-1://b is a URL, and SOURCE is read from this machine.",
            "Copy it first, and give the path of the copy: curl -LO s3+x.y-1://b",
        ),
    ],
)  # fmt: skip
def test_a_uri_is_refused_with_the_command_that_copies(
    uri: str, parameter: click.Parameter, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        LOCAL_PATH.convert(uri, parameter, None)
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_what_is_written_is_copied_afterwards() -> None:
    for uri, place in (("gs://b/x", "in a bucket"), ("ftp://b/x", "a URL")):
        with pytest.raises(UsageError) as refused:
            OUTPUT_PATH.convert(uri, OPTION, None)
        assert refused.value.message == f"{uri} is {place}, and --to is written on this machine."
        assert refused.value.hint == (
            f"Give a path here, and copy it afterwards: gcloud storage cp -r PATH {uri}"
        )


def test_a_source_may_be_in_a_bucket() -> None:
    assert SOURCE.convert("gs://bucket/a/b", ARGUMENT, None) == "gs://bucket/a/b"
    for uri in ("gs://", "s3://bucket/a"):
        with pytest.raises(UsageError):
            SOURCE.convert(uri, ARGUMENT, None)


def test_a_duration_is_in_seconds() -> None:
    assert [DURATION.convert(text, None, None) for text in ("90s", "30m", "1h30m", 7)] == [90, 1800, 5400, 7]
    with pytest.raises(click.BadParameter, match=r"\.$"):
        DURATION.convert("soon", OPTION, None)


def test_types_are_named_in_the_help() -> None:
    kinds = (ACCELERATOR, ACCELERATOR_OR_GENERATION, MOMENT, DURATION, SOURCE)
    assert [kind.name for kind in kinds] == ["accelerator", "accelerator", "moment", "duration", "path"]


COMMANDS = (
    ("data", "ls"), ("data", "describe", "digits"), ("data", "head", "digits"), ("data", "verify", "digits"),
    ("data", "rm", "digits", "--yes"), ("data", "upload", "digits", "numbers.csv"), ("runs",), ("logs",),
    ("pull",), ("submit", "job.py"),
)  # fmt: skip
IDS = [" ".join(command[:2]) for command in COMMANDS]


@pytest.fixture
def files(home: Path) -> None:
    """A script and a table in the working folder."""
    Path("job.py").write_text("print('hello')\n")
    Path("numbers.csv").write_text("number,label\n1,odd\n2,even\n")


@pytest.mark.usefixtures("files", "simulator")
class TestBucket:
    @pytest.mark.parametrize("command", COMMANDS, ids=IDS)
    def test_a_malformed_option_is_a_wrong_command_line_with_the_form(self, tpuctl, command) -> None:
        result = tpuctl(*command, "--bucket", "bucket!")
        assert result.code == 2
        assert "Error: 'bucket!' (--bucket) cannot be the bucket.\n" in result.err
        assert "Hint: It is 3 to 63 lower-case letters" in result.err

    @pytest.mark.parametrize("command", COMMANDS, ids=IDS)
    def test_a_malformed_variable_is_a_wrong_configuration(self, tpuctl, monkeypatch, command) -> None:
        monkeypatch.setenv("TPUCTL_BUCKET", "bucket!")
        result = tpuctl(*command)
        assert result.code == 3
        assert "Error: 'bucket!' (TPUCTL_BUCKET) cannot be the bucket.\n" in result.err

    @pytest.mark.parametrize("command", COMMANDS, ids=IDS)
    def test_a_folder_in_a_bucket_is_refused_with_the_bucket_alone(self, tpuctl, command) -> None:
        result = tpuctl(*command, "--bucket", "gs://sim-project-tpuctl/sub/")
        assert result.code == 2
        assert "it is a folder in a bucket" in result.err
        assert "Hint: Name the bucket alone: sim-project-tpuctl\n" in result.err

    @pytest.mark.parametrize("bucket", ["gs://sim-project-tpuctl", "gs://sim-project-tpuctl/"])
    @pytest.mark.parametrize("command", [("data", "ls"), ("runs",), ("doctor",)], ids=" ".join)
    def test_its_uri_is_as_good_as_its_name(self, tpuctl, command, bucket) -> None:
        result = tpuctl(*command, "--bucket", bucket)
        assert result.code == 0, result.err

    def test_the_hint_for_a_missing_bucket_does_not_create_one_in_google_cloud(self, tpuctl) -> None:
        err = tpuctl("runs", "--bucket", "no-such-bucket").err
        assert 'eval "$(tpuctl sim env)" && gcloud storage buckets create gs://no-such-bucket' in err


@pytest.mark.usefixtures("simulator")
class TestDoctor:
    def test_a_malformed_bucket_is_a_finding_and_the_other_checks_follow(self, tpuctl) -> None:
        result = tpuctl("doctor", "--bucket", "bucket!")
        assert result.code == 3
        states = {line.split()[1]: line.split()[0] for line in result.out.splitlines() if "fix:" not in line}
        assert states["bucket"] == "FAILED"
        assert states["region"] == "skipped"
        assert (states["api"], states["network"], states["terraform"], states["ssh"]) == ("ok",) * 4
        assert "'bucket!' (--bucket) cannot be the bucket." in result.out

    @pytest.mark.parametrize(
        ("variable", "value", "check"),
        [
            ("PROJECT", "My Project", "project"), ("ZONE", "us-central1", "zone"),
            ("DATA_BUCKET", "gs://b/c", "bucket"), ("NETWORK", "my_network", "network"),
            ("SERVICE_ACCOUNT", "tpu", "network"), ("SSH_USER", "ada lovelace", "ssh key"),
        ],
    )  # fmt: skip
    def test_every_malformed_setting_is_a_finding(self, tpuctl, monkeypatch, variable, value, check) -> None:
        monkeypatch.setenv(f"TPUCTL_{variable}", value)
        result = tpuctl("doctor")
        assert result.code == 3
        assert f"FAILED   {check:<12} '{value.removeprefix('gs://')}' (TPUCTL_{variable})" in result.out

    def test_a_malformed_zone_is_found_also_when_the_api_cannot_be_asked(self, tpuctl, monkeypatch) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for a metadata server
        monkeypatch.setenv("TPUCTL_ZONE", "us-central1")
        result = tpuctl("doctor", "--target", "gcp", "--project", "my-project")
        assert (
            "FAILED   zone         'us-central1' (TPUCTL_ZONE) cannot be the zone: it is a region"
            in result.out
        )


@pytest.mark.usefixtures("simulator")
class TestZone:
    def test_a_region_as_zone_is_refused_with_its_zones(self, tpuctl, monkeypatch) -> None:
        monkeypatch.setenv("TPUCTL_ZONE", "us-central1")
        for command in (("ls",), ("up", "v3-8", "--yes")):
            result = tpuctl(*command)
            assert result.code == 3
            assert "'us-central1' (TPUCTL_ZONE) cannot be the zone: it is a region." in result.err
            assert "Hint: Its zones with TPUs: us-central1-a, us-central1-b" in result.err

    def test_the_option_as_well(self, tpuctl) -> None:
        assert tpuctl("ls", "--zone", "us-central1").code == 2

    def test_an_empty_list_says_where_it_looked(self, tpuctl) -> None:
        assert "There are no runs in gs://sim-project-tpuctl." in tpuctl("runs").err
        assert "There are no datasets in gs://sim-project-tpuctl." in tpuctl("data", "ls").err
        assert "There are no TPUs in any zone of project sim-project." in tpuctl("ls").err
        err = tpuctl("ls", "--zone", "us-central1-a").err
        assert "There are no TPUs in us-central1-a of project sim-project." in err


@pytest.mark.usefixtures("simulator")
class TestSimulator:
    def test_a_file_for_the_simulator_is_used(self, tpuctl) -> None:
        Path("tpuctl.toml").write_text('target = "sim"\nbucket = "gs://my-bucket/"\n')
        result = tpuctl("data", "ls")
        assert "The bucket gs://my-bucket does not exist." in result.err
        assert "[sim] not used" not in result.err
        settings = tpuctl("config", "show", "--json").json["settings"]
        assert settings["bucket"] == {"value": "my-bucket", "origin": str(Path("tpuctl.toml").resolve())}

    def test_what_it_does_not_use_is_said_once_with_the_file(self, tpuctl) -> None:
        Path("tpuctl.toml").write_text('project = "my-project"\nbucket = "my-bucket"\nzone = "us-east1-d"\n')
        path = Path("tpuctl.toml").resolve()
        result = tpuctl("runs", "--target", "sim")
        assert result.code == 0
        assert result.err.count(f"[sim] not used: project, bucket of {path} (see 'tpuctl config show')") == 1
        rows = {
            line.split()[0]: line for line in tpuctl("config", "show", "--target", "sim").out.splitlines()
        }
        unused = f"default of the simulator; the simulator does not use 'my-bucket' ({path})"
        assert rows["bucket"].split(maxsplit=2) == ["bucket", "sim-project-tpuctl", unused]
        assert rows["zone"].endswith(str(path))

    def test_config_show_warns_of_what_commands_would_refuse(self, tpuctl) -> None:
        result = tpuctl("config", "show", "--bucket", "bucket!")
        assert result.code == 0
        assert "Warning: 'bucket!' (--bucket) cannot be the bucket. It is 3 to 63" in result.err
        assert "bucket!" in result.out


class TestFiles:
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    @pytest.mark.parametrize("command", [*COMMANDS, ("config", "show"), ("ls",), ()], ids=" ".join)
    def test_no_command_uses_the_file_of_another_user(self, tpuctl, files, command) -> None:
        Path("tpuctl.toml").write_text('target = "sim"\nssh_user = "mallory"\n')
        os.chown("tpuctl.toml", 65534, 65534)
        result = tpuctl(*command)
        assert result.code == 3
        assert f"Error: {Path('tpuctl.toml').resolve()} belongs to the user" in result.err
        assert "mallory" not in result.out

    def test_config_show_names_the_files_that_were_read(self, tpuctl, home) -> None:
        assert "Files that were read: none." in tpuctl("config", "show").err
        Path("tpuctl.toml").write_text('target = "sim"\n')
        (home / ".config/tpuctl").mkdir(parents=True)
        (home / ".config/tpuctl/config.toml").write_text('network = "mine"\n')
        paths = [str(Path("tpuctl.toml").resolve()), str(home / ".config/tpuctl/config.toml")]
        assert f"Files that were read: {', '.join(paths)}." in tpuctl("config", "show").err
        assert tpuctl("config", "show", "--json").json["files"] == paths

    @pytest.mark.parametrize("place", ["file", "variable", "user file"])
    def test_a_user_with_a_second_line_is_no_user(self, tpuctl, simulator, monkeypatch, home, place) -> None:
        """Else the second line would be one more key that may log in."""
        user = "ada\nroot:ssh-ed25519 AAAA"
        written = f"ssh_user = {json.dumps(user)}\n"
        if place == "variable":
            monkeypatch.setenv("TPUCTL_SSH_USER", user)
        elif place == "file":
            Path("tpuctl.toml").write_text(written)
        else:
            (home / ".config/tpuctl").mkdir(parents=True)
            (home / ".config/tpuctl/config.toml").write_text(written)
        result = tpuctl("up", "v3-8", "--yes")
        assert result.code == 3
        assert "cannot be the ssh user." in result.err
        assert tpuctl("ls", "--json").json["nodes"] == []
