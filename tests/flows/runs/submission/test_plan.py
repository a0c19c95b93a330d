"""What a submission plans: the record of the run, its attempt, its variables, and what the user is told."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl.bucket_layout import NodePaths
from tpuctl.bucket_objects import DecodeError, decode
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.runs.recovery.machine import options_of
from tpuctl.flows.runs.submission.plan import (
    SubmitPlan,
    SubmitRequest,
    attempt_on,
    default_name,
    on_node,
    own_variables,
    plan_submit,
    priced,
)
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.flows.runs.submission.specs import Launch, specs
from tpuctl.nodes import Node, joined
from tpuctl.recovery import Restarts
from tpuctl.runs import NOT_STORED, Attempt, Tpu, encode, submitter

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DATASET = PinnedDataset("pets", "1.0.0", "0" * 64)
SLICE = {"accelerator": "v3-32", "addresses": ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")}
SECRET = "ghp" + "_" + "a1B2" * 9


@pytest.fixture
def script(home: Path, tmp_path: Path) -> Path:
    """A script for JAX."""
    return write(tmp_path / "code/Train Job.py", framework="jax")


def write(path: Path, dependencies: str = "", **table: str) -> Path:
    """Write a script with such a header."""
    lines = ["# /// script", f"# dependencies = [{dependencies}]", "# [tool.tpuctl]"]
    lines += [
        f"# {name} = {value if value[0] in '{[0123456789' else repr(value)}" for name, value in table.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, "# ///", "print(1)", ""]))
    return path


def planned(script: Path, *nodes: Node, owner: str = "ada", **request: Any) -> SubmitPlan:
    provider = MemoryProvider(*(nodes or (node(),)))
    bucket = cast("Bucket", MemoryBucket())
    return plan_submit(bucket, provider, owner, SubmitRequest(script, **request), AT)


class TestRecord:
    def test_it_says_what_was_asked_for_by_whom_and_when(self, script: Path) -> None:
        plan = planned(script, arguments=("--seed", "7"), environment={"A": "1", "B": "2"}, stored=("B",))
        run = plan.run
        assert (run.run, plan.is_named) == ("train-job-20260102-030405", False)
        assert (run.created, run.submitter, run.script) == (
            "2026-01-02T03:04:05Z",
            submitter(),
            "Train Job.py",
        )
        assert (run.arguments, run.seeds) == (("--seed", "7"), {"--seed": "7"})
        assert (run.framework, run.accelerator, run.data_bucket) == ("jax", "v3-8", "b")
        assert run.environment == {"A": NOT_STORED, "B": "2"}
        assert (run.bundle_sha256, run.unpacked_size) == (plan.code.sha256, plan.code.unpacked_size)
        assert (run.setup, run.setup_timeout, run.wheelhouse, run.requirements) == ("", 1800.0, "", "")
        assert (run.restarts, run.not_kept, run.of_header, run.dataset, run.git) == (
            Restarts(),
            (),
            (),
            None,
            None,
        )
        assert plan.launch.environment == {"TPUCTL_ACCELERATOR": "v3-8", "A": "1", "B": "2"}
        assert plan.secrets == ("1",)
        assert plan.notes == ()

    def test_its_header_counts_where_no_option_does(self, script: Path) -> None:
        write(script, '"numpy"', framework="jax", setup="make", env='{A = "1", B = "2"}', restarts="3")
        plan = planned(script, environment={"B": "3"})
        assert (plan.launch.setup, plan.run.setup, plan.launch.dependencies) == ("make", "make", ("numpy",))
        assert plan.launch.environment == {"TPUCTL_ACCELERATOR": "v3-8", "A": "1", "B": "3"}
        assert plan.run.of_header == ("A",)
        assert plan.run.restarts == Restarts(after_loss=3)
        chosen = planned(script, setup="", restarts=RestartRequest("1"))
        assert (chosen.launch.setup, chosen.run.restarts) == ("", Restarts(after_loss=1))

    def test_a_name_is_the_users(self, script: Path) -> None:
        plan = planned(script, name="r1")
        assert (plan.run.run, plan.is_named) == ("r1", True)
        with pytest.raises(UsageError):
            planned(script, name="No Name")

    def test_secrets_in_arguments_and_commands_are_masked(self, script: Path) -> None:
        plan = planned(script, arguments=(f"--token={SECRET}",), setup=f"login --token {SECRET}")
        assert plan.run.arguments == ("--token=***",)
        assert plan.launch.arguments == (f"--token={SECRET}",)
        assert SECRET not in plan.run.setup
        assert plan.launch.setup == f"login --token {SECRET}"
        assert SECRET in plan.secrets
        assert plan.notes[0].startswith(
            "Warning: --token looks like a secret. The run's record has *** instead"
        )

    def test_variables_that_hosts_do_not_keep_are_named(self, script: Path) -> None:
        plan = planned(
            script, node(spot=True), environment={"API_KEY": "x7", "MINE": "1", "A": "2"}, secrets=("MINE",)
        )
        assert plan.run.not_kept == ("API_KEY", "MINE")
        assert plan.notes == (
            "After a reboot of its TPU this run resumes only while somebody watches it: "
            "hosts do not keep the values of API_KEY, MINE.",
        )

    @pytest.mark.parametrize(
        ("request_", "words"),
        [({"setup": "a\0b"}, "The setup command holds a NUL"), ({"environment": {"A": "\0"}}, "holds a NUL")],
    )
    def test_what_no_process_can_have_is_refused(
        self, script: Path, request_: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(UsageError, match=words):
            planned(script, **request_)

    def test_a_script_that_is_missing_or_no_text_is_refused(self, script: Path) -> None:
        with pytest.raises(UsageError, match="There is no file"):
            planned(script.parent / "other.py")
        script.write_bytes(b"\xff")
        with pytest.raises(UsageError, match="is not a text file"):
            planned(script)
        os.truncate(script, 17 << 20)
        with pytest.raises(UsageError, match="is larger than 16 MiB: no script is"):
            planned(script)


class TestProject:
    def test_what_its_own_file_sets_that_bills_or_runs_commands_is_said(self, script: Path) -> None:
        settings = '[tool.tpuctl]\nsetup = "make"\nrestarts = 3\nframework = "jax"\nenv = { A = "1" }\n'
        (script.parent / "pyproject.toml").write_text(settings)
        plan = planned(script)
        assert plan.notes == ("pyproject.toml sets setup = 'make', restarts = 3.",)
        assert (plan.launch.setup, plan.run.restarts.after_loss, plan.launch.environment["A"]) == (
            "make",
            3,
            "1",
        )
        assert plan.settings == {
            "runs": "'Train Job.py' (script)", "project": str(script.parent), "working folder": ".",
            "framework": "jax (header)", "env": "A (pyproject.toml)", "setup": "make (pyproject.toml)",
        }  # fmt: skip
        assert planned(script, setup="true").notes == ("pyproject.toml sets restarts = 3.",)

    def test_each_variable_is_shown_with_its_origin(self, script: Path) -> None:
        write(script, framework="jax", env='{A = "1", B = "1"}')
        (script.parent / "pyproject.toml").write_text('[tool.tpuctl]\nenv = { B = "2", C = "2" }\n')
        plan = planned(script, defaults={"env": {"C": "3", "D": "3"}}, environment={"E": "4", "A": "4"})
        assert plan.settings["env"] == (
            "C (pyproject.toml), D (tpuctl.toml), B (header), A (--env), E (--env)"
        )
        assert {name: plan.launch.environment[name] for name in "ABCDE"} == {
            "A": "4", "B": "1", "C": "2", "D": "3", "E": "4",
        }  # fmt: skip

    def test_a_run_is_named_by_what_it_runs(self, script: Path) -> None:
        (script.parent / "pkg.py").write_text("")
        module = planned(Path("pkg"), kind="module", here=script.parent)
        assert (module.run.run, module.run.kind) == ("pkg-20260102-030405", "module")
        command = planned(Path("python"), kind="command", arguments=("-m", "a.b"), here=script.parent)
        assert (command.run.run, command.run.command) == ("a-b-20260102-030405", ("python", "-m", "a.b"))


class TestNode:
    def test_one_that_fits_is_chosen(self, script: Path) -> None:
        assert planned(script).node.name == "n1"
        with pytest.raises(NotFoundError):
            planned(script, tpu="n2")
        with pytest.raises(StateError):
            planned(script, accelerator="v2-8")
        with pytest.raises(StateError):
            planned(script, owner="bob")

    def test_types_of_the_header_are_as_the_api_names_them(self, script: Path) -> None:
        write(script, framework="jax", accelerator='["v2-8", "tpu-v3-8"]')
        plan = planned(script)
        assert plan.node.accelerator == "v3-8"
        assert plan.notes == ("tpu-v3-8 is v3-8 in the Cloud TPU API.",)

    def test_another_one_may_be_made_for_it(self, script: Path) -> None:
        plan = planned(script, environment={"A": "1"})
        bucket = cast("Bucket", MemoryBucket())
        moved = on_node(plan, node("n9", **SLICE), bucket)
        assert (moved.node.name, moved.run.accelerator, moved.attempt.tpu.name) == ("n9", "v3-32", "n9")
        assert moved.launch.environment == {"TPUCTL_ACCELERATOR": "v3-32", "A": "1"}
        assert moved.attempt.workers == (0, 1, 2, 3)
        assert moved.attempt.created == plan.attempt.created
        assert moved.run.machine
        assert moved.run.machine.accelerator == "v3-32"

    def test_its_price_is_recorded(self, script: Path) -> None:
        plan = planned(script)
        assert priced(plan, lambda item: None).attempt.price is None
        price = RecordedPrice("1.5", "USD", "a list", "2026-01-01T00:00:00Z")
        assert priced(plan, lambda item: price if item == plan.node else None).attempt.price == price


class TestAttempt:
    @pytest.mark.parametrize(
        ("framework", "fields", "workers"),
        [
            ("tensorflow", {}, (0,)), ("tensorflow", SLICE, (0,)), ("jax", {}, (0,)),
            ("jax", SLICE, (0, 1, 2, 3)), ("pytorch", SLICE, (0, 1, 2, 3)),
        ],
    )  # fmt: skip
    def test_tensorflow_runs_on_the_first_worker_others_on_all(
        self, framework: str, fields: dict[str, Any], workers: tuple[int, ...]
    ) -> None:
        item = node(**fields)
        attempt = attempt_on(item, framework, AT)
        assert (attempt.attempt, attempt.created, attempt.tpu) == (1, "2026-01-02T03:04:05Z", Tpu.of(item))
        assert (attempt.workers, attempt.log_layout, attempt.price) == (workers, 2, None)
        assert attempt_on(item, framework, AT, 7).attempt == 7

    def test_a_slice_of_tensorflow_is_driven_by_its_name(self) -> None:
        assert own_variables("b", "tensorflow", node(**SLICE), None) == {
            "TPUCTL_ACCELERATOR": "v3-32", "TPU_NAME": "n1", "TPU_LOAD_LIBRARY": "0",
        }  # fmt: skip
        for framework, fields in (("tensorflow", {}), ("jax", SLICE)):
            item = node(**fields)  # type: ignore[arg-type]
            assert own_variables("b", framework, item, None) == {"TPUCTL_ACCELERATOR": item.accelerator}

    def test_a_dataset_is_a_folder_of_its_bucket(self) -> None:
        variables = own_variables("b", "jax", node(), DATASET)
        assert variables["TPUCTL_DATA_DIR"] == "gs://b/datasets/pets/1.0.0"


def slices(kind: str = "v4-16") -> list[Node]:
    """Return two slices of two hosts each, of one request."""
    return [
        node(
            name, id=replace(node().id, name=name, uid=name), accelerator=kind, queued_resource="ms",
            multislice=True, addresses=("34.0.0.1", "34.0.0.2"),
            internal=(f"10.{number}.0.1", f"10.{number}.0.2"),
        )
        for number, name in enumerate(("ms-0", "ms-1"))
    ]  # fmt: skip


class TestSlices:
    """Of one request: a run on all of them, or on one."""

    @pytest.mark.parametrize(
        ("place", "common", "numbers"),
        [
            (joined("ms", slices()), ("10.0.0.1", "2"), ["0", "0", "1", "1"]),
            (slices()[1], ("10.1.0.1", "1"), ["0", "0"]),
        ],
    )
    def test_each_host_knows_its_slice_and_all_the_same_coordinator(
        self, script: Path, place: Node, common: tuple[str, str], numbers: list[str]
    ) -> None:
        plan = plan_submit(
            cast("Bucket", MemoryBucket()), MemoryProvider(), "ada", SubmitRequest(script), AT, node=place
        )
        start = Launch((), (), plan.launch.environment, restarts=1)
        told = specs("b", plan.run, plan.attempt, start, 1, "key")
        assert [
            (spec.environment["MEGASCALE_COORDINATOR_ADDRESS"], spec.environment["MEGASCALE_NUM_SLICES"])
            for spec in told
        ] == [common] * len(numbers)
        assert [spec.environment["MEGASCALE_SLICE_ID"] for spec in told] == numbers
        assert [spec.environment["TPUCTL_SLICE"] for spec in told] == numbers
        assert [(spec.worker, spec.workers) for spec in told] == [
            (worker, len(numbers)) for worker in range(len(numbers))
        ]
        names = [part.name for part in place.id.parts]
        assert [spec.tpu_uid for spec in told] == [names[int(number)] for number in numbers]
        for spec in told:
            assert spec.resumption
            folders = {spec.resumption.line, *spec.resumption.others}
            assert folders == {NodePaths.of(part).runs for part in place.id.parts}

    def test_a_restart_makes_as_many(self) -> None:
        machine = machine_like(joined("ms", slices()), RestartRequest(), "jax", "ada")
        assert (machine.slices, machine.queued) == (2, True)
        assert options_of(machine, "r", "r-2", "b").slices == 2
        assert machine_like(slices()[0], RestartRequest(), "jax", "ada").slices == 1

    @pytest.mark.parametrize(
        ("framework", "kind", "reason"),
        [
            ("tensorflow", "v4-16", "for JAX and PyTorch only"),
            ("jax", "v3-32", "v4 and later, and they are v3-32"),
        ],
    )
    def test_what_cannot_span_them_is_refused_with_the_way_to_one(
        self, tmp_path: Path, home: Path, framework: str, kind: str, reason: str
    ) -> None:
        script = write(tmp_path / "code/job.py", framework=framework)
        place = joined("ms", slices(kind))
        bucket = cast("Bucket", MemoryBucket())
        with pytest.raises(UsageError, match=f"cannot span the 2 slices of 'ms': .*{reason}") as refused:
            plan_submit(bucket, MemoryProvider(), "ada", SubmitRequest(script), AT, node=place)
        assert refused.value.hint == "Run it on one slice: --tpu ms-0"
        assert plan_submit(bucket, MemoryProvider(), "ada", SubmitRequest(script), AT, node=place.slices[0])

    @pytest.mark.parametrize(
        ("hosts", "reason"),
        [(3, "its hosts are not those of its slices"), (2, "its slices do not have its workers")],
    )
    def test_a_record_of_workers_that_no_slice_has_is_refused(self, hosts: int, reason: str) -> None:
        record = attempt_on(joined("ms", slices()), "jax", AT)
        assert decode(encode(record), Attempt) == record
        with pytest.raises(DecodeError, match=reason):
            decode(encode(record).replace(b'"hosts": 4', b'"hosts": %d' % hosts), Attempt)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("job.py", "job"), ("My_Job 2.py", "my-job-2"), ("__x__.py", "x"), ("é.py", "run"),
        ("x" * 41 + ".py", "x" * 40),
    ],
)  # fmt: skip
def test_a_default_name_is_made_of_the_script_and_the_time(file: str, name: str) -> None:
    assert default_name(SubmitRequest(file), AT) == f"{name}-20260102-030405"


ARCHIVES = {"3.12.8": "a" * 64, "3.13.1": "b" * 64}


class TestPython:
    def test_the_option_overrides_the_header_and_archives_that_fit_go_along(self, tmp_path: Path) -> None:
        script = tmp_path / "job.py"
        script.write_text("# /// script\n# [tool.tpuctl]\n# framework = 'jax'\n# python = '3.12'\n# ///\n")
        run = planned(script, python_archives=ARCHIVES).run
        assert (run.python, run.python_archives) == ("3.12", {"3.12.8": "a" * 64})
        run = planned(script, python="3.13", python_archives=ARCHIVES).run
        assert (run.python, run.python_archives) == ("3.13", {"3.13.1": "b" * 64})

    def test_a_script_that_asks_for_none_gets_none(self, script: Path) -> None:
        run = planned(script, python_archives=ARCHIVES).run
        assert (run.python, run.python_archives) == ("", {})

    @pytest.mark.parametrize(
        ("python", "words"),
        [
            ("3.12", r"Python 3.12 \(--python\) is none that the script allows"),
            ("py3", "is no version of Python"),
        ],
    )
    def test_one_that_cannot_be_is_refused(self, tmp_path: Path, python: str, words: str) -> None:
        script = tmp_path / "job.py"
        script.write_text("# /// script\n# requires-python = '<3.12'\n# ///\n")
        with pytest.raises(UsageError, match=words):
            planned(script, python=python)


class TestProjectLists:
    def test_a_script_without_a_header_gets_what_its_project_lists(self, home: Path, tmp_path: Path) -> None:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "job.py").write_text("print(1)\n")
        (folder / "requirements.txt").write_text("flax\noptax<1\n-c held.txt\n")
        (folder / "held.txt").write_text("numpy<2\n")
        plan = planned(folder / "job.py")
        assert plan.launch.dependencies == plan.run.dependencies == ("flax", "optax<1")
        assert (plan.run.listed_in, plan.run.constraints) == ("requirements.txt", ("numpy<2",))
        assert "Hosts install what requirements.txt lists (2)." in plan.notes

    def test_a_header_comes_first_also_one_that_requires_nothing(self, home: Path, tmp_path: Path) -> None:
        script = write(tmp_path / "project/job.py", framework="jax")
        (script.parent / "requirements.txt").write_text("flax\n")
        plan = planned(script)
        assert (plan.launch.dependencies, plan.run.listed_in) == ((), "")


SHAPES = {
    "pyproject.toml": '[project]\nname = "mine"\n[project.scripts]\nmine-train = "mine.train:main"\n',
    "src/mine/__init__.py": "", "src/mine/train.py": "from mine import net", "src/mine/net.py": "import flax",
    "run.sh": 'set -e\nexport A=1\npython3 -u -m mine.train \\\n  --steps 3\n',
    "deep/all.sh": "bash ../run.sh", "scripts/go.py": "from mine.train import main",
    "other.sh": "gsutil ls", "k.py": "import keras, os\nos.environ['KERAS_BACKEND'] = 'jax'\n",
    "t.py": "import torch\nimport torch_xla\n", "keras_only.py": "import keras",
}  # fmt: skip


class TestHosts:
    """Which framework a program is for is seen where it stands, and never guessed on several hosts."""

    @pytest.fixture
    def project(self, home: Path, tmp_path: Path) -> Path:
        for name, text in SHAPES.items():
            (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "p" / name).write_text(text)
        return tmp_path / "p"

    @pytest.mark.parametrize(
        ("script", "kind", "arguments", "framework"),
        [
            ("mine.train", "module", (), "jax"), ("run.sh", "", (), "jax"), ("deep/all.sh", "", (), "jax"),
            ("scripts/go.py", "", (), "jax"), ("k.py", "", (), "jax"), ("t.py", "", (), "pytorch"),
            ("mine-train", "command", ("--steps", "3"), "jax"),
            ("env", "command", ("A=1", "python", "scripts/go.py"), "jax"),
            ("torchrun", "command", ("--nproc_per_node", "4", "t.py"), "pytorch"),
        ],
    )  # fmt: skip
    def test_its_framework_is_seen(
        self, project: Path, script: str, kind: str, arguments: tuple[str, ...], framework: str
    ) -> None:
        plan = planned(
            Path(script), node(**SLICE, runtime="tpu-ubuntu2204-base"), kind=kind, here=project,
            arguments=arguments, setup="true",
        )  # fmt: skip
        assert (plan.run.framework, plan.attempt.workers) == (framework, (0, 1, 2, 3))

    @pytest.mark.parametrize(
        ("imported", "framework"), [("jax", "jax"), ("torch", "pytorch"), ("mine", "tensorflow")]
    )
    def test_what_it_imports_counts_before_what_its_project_lists(
        self, home: Path, tmp_path: Path, imported: str, framework: str
    ) -> None:
        """A list names all that a repository uses, such as the TensorFlow that reads its data."""
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "requirements.txt").write_text("tensorflow\n")
        (folder / "job.py").write_text(f"import {imported}\n")
        plain = node(runtime="tpu-ubuntu2204-base")
        assert planned(folder / "job.py", plain, setup="true").run.framework == framework

    @pytest.mark.parametrize("script", ["other.sh", "keras_only.py"])
    def test_one_that_nobody_can_see_is_asked_for(self, project: Path, script: str) -> None:
        plain = node(**SLICE, runtime="tpu-ubuntu2204-base")
        with pytest.raises(UsageError, match="Nothing says which framework") as caught:
            planned(Path(script), plain, here=project)
        assert "--framework jax" in caught.value.hint
        assert planned(Path(script), plain, here=project, framework="jax", setup="true").attempt.workers == (
            0,
            1,
            2,
            3,
        )
        other = planned(Path(script), node(**SLICE), here=project)
        assert other.attempt.workers == (0,)
        assert any("starts on worker 0 of 4 alone" in note for note in other.notes)
        assert not any("worker 0" in note for note in planned(Path(script), here=project).notes)


class TestBeforeItBills:
    @pytest.fixture
    def project(self, home: Path, tmp_path: Path) -> Path:
        files = {"pyproject.toml": "", "pkg/__init__.py": "", "pkg/a.py": "", "conf/a.yaml": ""}
        for name, text in {**files, "pkg/train.py": "import os\nfrom . import a\n"}.items():
            (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "p" / name).write_text(text)
        return tmp_path / "p"

    def test_a_relative_import_of_a_script_is_refused_with_the_module(self, project: Path) -> None:
        with pytest.raises(UsageError, match=r"line 2: a script has no package") as caught:
            planned(Path("pkg/train.py"), here=project)
        assert caught.value.hint == "Run it as a module: -m pkg.train"
        assert planned(Path("pkg.train"), here=project, kind="module").notes == ()

    def test_an_import_that_nothing_provides_is_one_note(self, project: Path) -> None:
        (project / "b.py").write_text("import pkg\nimport optax, yaml\nimport wandb\n")
        plain = node(runtime="tpu-ubuntu2204-base")
        (note,) = planned(Path("b.py"), plain, here=project).notes
        assert note.startswith("Warning: nothing provides optax (b.py, line 2), wandb (b.py, line 3).")
        notes = planned(Path("b.py"), plain, here=project, python="3.12").notes
        assert any("yaml (b.py, line 2)" in note for note in notes), "another Python has nothing of the image"
        assert planned(Path("b.py"), plain, here=project, setup="pip install optax wandb").notes == ()
        assert planned(Path("b.py"), here=project).notes == (), "nobody knows what this image has"

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"\x7fELF\x02\x01", "is a binary"),
            (b'{"cells": [], "nbformat": 4, "metadata": {}}', r"is a notebook, not a script"),
        ],
    )
    def test_what_is_no_script_is_refused(self, project: Path, data: bytes, words: str) -> None:
        (project / "c.py").write_bytes(data)
        with pytest.raises(UsageError, match=words):
            planned(Path("c.py"), here=project)

    def test_places_of_this_machine_in_arguments_are_named(self, project: Path) -> None:
        (project / "d.py").touch()
        inside = f"--config={project / 'conf/a.yaml'}"
        notes = planned(Path("d.py"), here=project, arguments=(inside, "conf/a.yaml", "/tmp", "/etc")).notes
        assert notes == (
            f"{project / 'conf/a.yaml'} is named by its path on this machine: hosts have it as conf/a.yaml.",
        )

    def test_what_tpuctl_toml_of_the_project_sets_is_said_as_well(self, project: Path) -> None:
        (project / "d.py").touch()
        defaults = {"accelerator": "v3-8", "setup": "make", "framework": "jax"}
        notes = planned(Path("d.py"), here=project, defaults=defaults).notes
        assert notes == ("tpuctl.toml sets accelerator = 'v3-8', setup = 'make'.",)
