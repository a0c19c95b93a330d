"""What the types of arguments accept, and what they say of the rest."""

from __future__ import annotations

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
