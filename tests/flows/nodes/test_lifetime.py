"""The startup script that starts the keeper beside the user's own script.

The end of a TPU's --ttl: when it is, and how far it can be moved.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import CREATED, ZONE, MemoryProvider, node, queued_resource
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.nodes import lifetime as module
from tpuctl.flows.nodes.lifetime import (
    MOST_BYTES,
    Extension,
    Lifetime,
    expiry_of,
    plan_extension,
    require_time_left,
    users_script,
)
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.nodes import HttpRequest, Node


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


BORN = datetime(2026, 1, 1, tzinfo=UTC)
TTL = {"tpuctl-ttl": "3600s"}
HOUR = timedelta(hours=1)


def mortal(name: str = "n1", **fields: Any) -> Node:
    return node(name, **{"metadata": TTL, **fields})


class TestEnd:
    @pytest.mark.parametrize(
        ("metadata", "end"),
        [
            ({}, None), (TTL, BORN + HOUR),
            ({**TTL, "tpuctl-expires": "2026-01-01T05:00:00Z"}, BORN + 5 * HOUR),
            ({"tpuctl-ttl": "soon"}, None), ({"tpuctl-expires": "2026-13-01T05:00:00Z"}, None),
        ],
    )  # fmt: skip
    def test_metadata_says_when_a_node_ends(self, metadata: dict[str, str], end: datetime | None) -> None:
        assert expiry_of(node(metadata=metadata)) == end

    def test_a_ttl_counts_from_the_creation_of_a_node(self) -> None:
        assert expiry_of(mortal(created_at=0.0)) is None
        assert expiry_of(mortal(created_at=CREATED + 60)) == BORN + HOUR + timedelta(minutes=1)
        assert expiry_of(queued_resource(metadata=TTL, created_at=CREATED)) is None

    def test_the_first_node_that_ends_ends_all_of_it(self) -> None:
        nodes = (mortal(created_at=CREATED + 60), mortal(), node())
        assert module.expiry(Allocation(nodes)) == BORN + HOUR
        assert module.expiry(Allocation((node(),))) is None


@pytest.mark.parametrize(("seconds", "is_past"), [(3599, False), (3600, True), (3601, True)])
def test_a_node_past_its_end_is_not_started(seconds: int, is_past: bool) -> None:
    now = BORN + timedelta(seconds=seconds)
    if not is_past:
        require_time_left(mortal(), lambda: now)
        return
    with pytest.raises(StateError) as error:
        require_time_left(mortal(), lambda: now)
    assert error.value.message == (
        "'n1' is past its --ttl, which ended 2026-01-01T01:00:00Z: it would delete itself at boot."
    )
    assert error.value.hint == "Move its end first: tpuctl extend n1 8h"


def test_one_without_an_end_asks_nobody_for_the_time() -> None:
    require_time_left(node(), lambda: pytest.fail("asked"))


class TestExtension:
    def plan(self, item: Node, length: int = 60, now: datetime = BORN) -> Extension:
        return plan_extension(MemoryProvider(item), "n1", length, now)

    def test_it_begins_at_the_present_end_or_now(self) -> None:
        assert self.plan(mortal()).expires == BORN + HOUR + timedelta(seconds=60)
        late = BORN + 2 * HOUR
        assert self.plan(mortal(), now=late).expires == late + timedelta(seconds=60)
        assert self.plan(mortal(), now=late.replace(microsecond=999_999)).expires == late + timedelta(
            seconds=60
        )

    def test_a_year_from_now_is_the_longest(self) -> None:
        assert self.plan(mortal(), YEAR - 3600).expires == BORN + timedelta(seconds=YEAR)
        with pytest.raises(UsageError, match="'n1' would end more than a year from now"):
            self.plan(mortal(), YEAR - 3599)

    def test_one_without_an_end_has_none_to_move(self) -> None:
        with pytest.raises(StateError) as error:
            self.plan(node())
        assert error.value.message == "'n1' has no --ttl: it runs until 'tpuctl down n1'."
        with pytest.raises(StateError, match="it runs until 'terraform apply'"):
            self.plan(node(labels={"managed-by": "terraform"}))

    def test_one_without_nodes_has_not_begun_to_live(self) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource(metadata=TTL)
        with pytest.raises(
            StateError, match=r"^'q1' has no nodes yet: the time of --ttl begins with them"
        ) as error:
            plan_extension(provider, "q1", 60, BORN)
        assert error.value.hint == "Its state: 'tpuctl ls'."

    def test_the_zone_chooses(self) -> None:
        provider = MemoryProvider(mortal())
        assert plan_extension(provider, "n1", 60, BORN, ZONE).allocation.name == "n1"
        with pytest.raises(NotFoundError):
            plan_extension(provider, "n1", 60, BORN, "europe-west4-a")

    def test_every_node_gets_the_new_end_beside_its_metadata(self) -> None:
        provider = MemoryProvider(mortal(metadata={**TTL, "color": "blue"}))
        plan, lines = plan_extension(provider, "n1", 60, BORN), list[str]()
        assert module.requests(provider, plan) == [HttpRequest("UpdateNode", "n1")]
        module.extend(provider, plan, lines.append)
        changed = provider.nodes["n1"].metadata
        assert changed == {**TTL, "color": "blue", "tpuctl-expires": "2026-01-01T01:01:00Z"}
        assert lines == ["n1 ends 2026-01-01T01:01:00Z"]

    @pytest.mark.parametrize(
        ("stored", "is_changed"), [("05:59:59", True), ("06:00:00", False), ("07:00:00", False)]
    )
    def test_an_end_that_somebody_has_moved_farther_stays(self, stored: str, is_changed: bool) -> None:
        item = mortal(metadata={"tpuctl-expires": f"2026-01-01T{stored}Z"})
        plan = Extension(Allocation((item,)), BORN + 6 * HOUR)
        assert len(module.changes(plan)) == is_changed
        provider = MemoryProvider(item)
        module.extend(provider, plan, lambda line: None)
        kept = "06:00:00" if is_changed else stored
        assert provider.nodes["n1"].metadata["tpuctl-expires"] == f"2026-01-01T{kept}Z"
