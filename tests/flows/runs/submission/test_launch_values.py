"""What a run was started with and the bucket does not hold: kept on this machine for its restarts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.records import CREATED
from tpuctl.errors import ConfigError, UsageError
from tpuctl.flows.runs.submission.launch_values import (
    MOST_FILES,
    LaunchValues,
    confirm,
    forget,
    keep,
    kept,
    known,
    restored,
    restored_machine,
)
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.nodes import NodeSpec
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import NOT_STORED, Run, Tpu

MACHINE = Machine("v3-8", ("us-central1-b",), False, "image-1", "ada")
RUN = Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--rate", "1"), "0" * 64, "jax", "v3-8", ("numpy",),
    {"RATE": "1", "KEY": NOT_STORED, "OTHER": NOT_STORED}, token="t1", setup="make",
)  # fmt: skip
NODE = Tpu.of(node())
VALUES = LaunchValues(
    RUN, NODE, ("--key=x",), ("own",), {"KEY": "k", "OTHER": "o"}, "make x", {"pw": "1"}, "#!x"
)


@pytest.fixture
def path(home: Path, tmp_path: Path) -> Path:
    """Where the values of r1 are kept."""
    return tmp_path / "state/launches/b/r1.json"


def write(path: Path, **changes: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(VALUES, **changes)))


def changed(**fields: Any) -> Run:
    return msgspec.structs.replace(RUN, **fields)


class TestRestored:
    def test_what_is_kept_here_is_what_it_was_started_with(self, path: Path) -> None:
        write(path)
        assert restored("b", RUN, {}, {"TPU_NAME": "n1"}) == Launch(
            ("--key=x",), ("own",), {"TPU_NAME": "n1", "RATE": "1", "KEY": "k", "OTHER": "o"}, "make x"
        )

    def test_what_is_given_counts_more(self, path: Path) -> None:
        write(path)
        environment = restored("b", RUN, {"KEY": "new", "RATE": "9"}, {"RATE": "0"}).environment
        assert environment == {"RATE": "1", "KEY": "new", "OTHER": "o"}

    def test_without_a_file_its_record_and_what_is_given_may_do(self, path: Path) -> None:
        launch = restored("b", RUN, {"KEY": "k", "OTHER": "o"}, {})
        assert launch == Launch(("--rate", "1"), ("numpy",), {"RATE": "1", "KEY": "k", "OTHER": "o"}, "make")

    def test_the_values_of_a_former_run_of_the_name_are_none(self, path: Path) -> None:
        write(path, record=changed(token="t0"))
        assert kept("b", RUN) is None
        with pytest.raises(UsageError) as error:
            restored("b", RUN, {}, {})
        assert error.value.message == (
            "Run 'r1' cannot be started again from here without the values of KEY, OTHER, which are neither "
            "in the bucket nor on this machine."
        )
        assert error.value.hint == (
            "Export them, then: tpuctl watch r1 --secret KEY --secret OTHER. Or watch where it was submitted."
        )

    def test_they_go_to_nothing_else_than_was_submitted(self, path: Path) -> None:
        """The token of a run is in the bucket: whoever may write there may give it to other code."""
        write(path)
        other = {
            "script": "other.py", "bundle_sha256": "1" * 64, "requirements": "other.txt", "setup": "evil",
            "machine": MACHINE, "environment": {}, "arguments": (), "packages": "own", "submitter": "eve",
        }  # fmt: skip
        for name, value in other.items():
            with pytest.raises(ConfigError, match=f"since it was submitted here: {name}. It is not"):
                kept("b", replace(RUN, **{name: value}))
        with pytest.raises(ConfigError, match="bundle_sha256, machine"):
            restored("b", changed(bundle_sha256="1" * 64, machine=MACHINE), {"KEY": "k", "OTHER": "o"}, {})

    def test_one_that_was_confirmed_here_has_none(self, path: Path) -> None:
        confirm("b", RUN, NODE)
        values = known("b", RUN)
        assert values
        assert values.tpu == NODE
        assert kept("b", RUN) is None
        with pytest.raises(ConfigError, match="script"):
            known("b", changed(script="other.py"))

    def test_a_confirmation_that_cannot_be_kept_is_an_error_with_the_place(self, path: Path) -> None:
        path.parent.parent.mkdir(parents=True)
        path.parent.write_text("a file")
        with pytest.raises(ConfigError) as error:
            confirm("b", RUN, NODE)
        assert error.value.message == f"{path} cannot be written: File exists."
        assert "TPUCTL_STATE" in error.value.hint

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": "t1"}'])
    def test_a_file_that_is_none_is_nothing(self, path: Path, content: bytes) -> None:
        write(path)
        assert kept("b", RUN) == VALUES
        path.write_bytes(content)
        assert kept("b", RUN) is None

    @pytest.mark.parametrize(
        ("fields", "part"),
        [
            ({"arguments": ("--key=***",)}, "arguments"),
            ({"dependencies": ("x @ https://***@h/x",)}, "dependencies"),
            ({"setup": "login ***"}, "--setup"),
        ],
    )
    def test_what_the_record_masks_has_to_be_kept_here(
        self, path: Path, fields: dict[str, Any], part: str
    ) -> None:
        run = changed(environment={}, **fields)
        with pytest.raises(UsageError, match=f"from here: its {part} held a secret, which is not stored"):
            restored("b", run, {}, {})
        write(path, record=run)
        assert restored("b", run, {}, {}).setup == "make x"


class TestMachine:
    HIDDEN = msgspec.structs.replace(
        MACHINE, metadata={"color": "blue", "pw": NOT_STORED}, startup_script=NOT_STORED
    )

    def test_it_gets_back_what_its_record_leaves_out(self, path: Path) -> None:
        write(path)
        machine = restored_machine("b", RUN, self.HIDDEN)
        assert (machine.metadata, machine.startup_script) == ({"color": "blue", "pw": "1"}, "#!x")
        metadata_only = msgspec.structs.replace(self.HIDDEN, startup_script="#!own")
        assert restored_machine("b", RUN, metadata_only).startup_script == "#!own"

    def test_one_that_leaves_out_nothing_needs_nothing(self, path: Path) -> None:
        assert restored_machine("b", RUN, MACHINE) == MACHINE
        write(path)
        assert restored_machine("b", RUN, MACHINE) == MACHINE

    @pytest.mark.parametrize(
        ("values", "named"),
        [
            (None, "'--metadata pw' and '--startup-script'"),
            ({"metadata": {}}, "'--metadata pw'"),
            ({"startup_script": ""}, "'--startup-script'"),
        ],
    )
    def test_what_nobody_knows_is_named(self, path: Path, values: dict[str, Any] | None, named: str) -> None:
        if values is not None:
            write(path, **values)
        with pytest.raises(UsageError) as error:
            restored_machine("b", RUN, self.HIDDEN)
        assert error.value.message == (
            f"Run 'r1' cannot be started again from here: its TPU had {named}, which seemed to hold a secret "
            "and is not stored."
        )


def test_they_are_forgotten_with_the_run(path: Path) -> None:
    write(path)
    forget("b", "r1")
    assert not path.exists()
    forget("b", "r1")


def test_what_cannot_be_deleted_stops_nothing(path: Path) -> None:
    path.mkdir(parents=True)
    forget("b", "r1")
    assert stat.S_ISDIR(os.stat(path).st_mode)


class TestKept:
    def keep(self, record: Run, **fields: Any) -> list[str]:
        item = fields.pop("node", node())
        nothing: Any = None
        values = {"arguments": RUN.arguments, "dependencies": RUN.dependencies, "setup": RUN.setup, **fields}
        environment = {"RATE": "1", "KEY": "k", "OTHER": "o"}
        plan = SubmitPlan(record, nothing, item, nothing, Launch(environment=environment, **values))
        return keep("b", record, plan)

    RESTARTING = msgspec.structs.replace(RUN, restarts=Restarts(after_loss=None), machine=MACHINE)

    def test_is_what_the_record_leaves_out_in_a_private_file(self, path: Path) -> None:
        assert self.keep(self.RESTARTING, arguments=("--key=x",)) == []
        assert kept("b", self.RESTARTING) == LaunchValues(
            self.RESTARTING, NODE, ("--key=x",), ("numpy",), {"KEY": "k", "OTHER": "o"}, "make"
        )
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_is_nothing_of_a_run_that_is_not_started_again(self, path: Path) -> None:
        self.keep(msgspec.structs.replace(self.RESTARTING, restarts=Restarts()))
        assert not path.exists()

    def test_is_the_record_where_that_has_it_all(self, path: Path) -> None:
        record = msgspec.structs.replace(self.RESTARTING, environment={"RATE": "1"})
        self.keep(record)
        values = known("b", record)
        assert values
        assert (values.record, values.environment) == (record, {})

    def test_are_the_metadata_and_the_script_that_the_machine_leaves_out(self, path: Path) -> None:
        hidden = msgspec.structs.replace(MACHINE, metadata={"pw": NOT_STORED}, startup_script=NOT_STORED)
        spec = NodeSpec(metadata={"pw": "1", "color": "blue"}, startup_script="#!x")
        record = msgspec.structs.replace(self.RESTARTING, machine=hidden, environment={})
        self.keep(record, node=node(spec=spec))
        values = kept("b", record)
        assert values
        assert (values.metadata, values.startup_script) == ({"pw": "1"}, "#!x")

    def test_are_the_newest(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        for number in range(MOST_FILES):
            other = path.with_name(f"other-{number}.json")
            other.write_text("{}")
            os.utime(other, (number, number))
        self.keep(self.RESTARTING)
        assert path.exists()
        assert len(list(path.parent.iterdir())) == MOST_FILES
        assert not path.with_name("other-0.json").exists()

    def test_stop_no_submission_where_the_disk_takes_no_file_and_are_named(self, path: Path) -> None:
        path.parent.parent.mkdir(parents=True)
        path.parent.write_text("")
        (said,) = self.keep(self.RESTARTING)
        assert kept("b", self.RESTARTING) is None
        assert said == (
            "Warning: the record, KEY, OTHER of run 'r1' could not be kept here (File exists). "
            "To start it again: tpuctl watch r1 --secret KEY --secret OTHER"
        )
        (said,) = self.keep(self.RESTARTING, arguments=("--key=x",))
        assert said.startswith(
            "Warning: the record, KEY, OTHER, arguments of run 'r1' could not be kept here"
        )
        assert said.endswith("A restart is refused without that.")
        assert self.keep(msgspec.structs.replace(self.RESTARTING, restarts=Restarts())) == []
