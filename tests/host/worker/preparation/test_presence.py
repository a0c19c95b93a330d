"""What the host's image has, by the metadata of its distributions, and which requirements that fulfils."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tpuctl.host.worker.preparation import presence
from tpuctl.host.worker.requirements import parse

Add = Callable[..., None]


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Add a distribution to an image that has nothing else."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    presence._distributions.cache_clear()

    def add(name: str, version: str = "1.0", *requires: str, modules: str = "", folder: str = "") -> None:
        place = tmp_path / folder / f"{name}-{version}.dist-info"
        place.mkdir(parents=True)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
        (place / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        if modules:
            (place / "top_level.txt").write_text(modules)
        presence._distributions.cache_clear()

    yield add
    presence._distributions.cache_clear()


@pytest.mark.parametrize(
    ("requirement", "is_present"),
    [
        ("jax", True), ("JAX", True), ("jax>=0.4", True), ("jax>=0.5", False), ("jax==0.4.*", True),
        ("jax @ https://h/jax.whl", False),  # the installer decides
        ("flax", False), ("flax>=1", False),
    ],
)  # fmt: skip
def test_a_distribution_in_a_fitting_version_is_present(
    image: Add, requirement: str, is_present: bool
) -> None:
    image("jax", "0.4.30")
    assert presence.is_present(parse(requirement)) is is_present


@pytest.mark.parametrize(
    ("requirement", "is_present"),
    [
        ("jax[tpu]", True), ("jax[TPU]", True), ("jax[gpu]", False), ("jax[tpu,gpu]", False),
        ("jax[none]", True), ("jax[odd]", False), ("jax[deep]", True), ("jax[loop]", False),
    ],
)  # fmt: skip
def test_an_extra_is_present_with_all_that_it_requires(
    image: Add, requirement: str, is_present: bool
) -> None:
    image(
        "jax", "0.4.30", "numpy>=1", 'libtpu>=0.1 ; extra == "tpu"', "numpy ; extra=='tpu'",
        'cuda-of-test ; extra == "gpu"', '-r x ; extra == "odd"', 'jax[tpu] ; extra == "deep"',
        'jax[loop] ; extra == "loop"',
    )  # fmt: skip
    image("libtpu", "0.1")
    image("numpy")
    assert presence.is_present(parse(requirement)) is is_present


class TestOtherNames:
    """TPU images bring TensorFlow under the name of another distribution."""

    @pytest.fixture(autouse=True)
    def _tensorflow(self, image: Add) -> None:
        image("tf-nightly-tpu", "2.17.0", modules="tensorflow\ntensorflow_io\n")

    @pytest.mark.parametrize(
        ("requirement", "is_present"),
        [
            ("tensorflow", True), ("tensorflow>=2.16", True), ("tensorflow>=2.18", False),
            ("tensorflow-io", True), ("tf-nightly-tpu", True), ("keras", False),
        ],
    )  # fmt: skip
    def test_a_module_stands_for_the_distribution_of_its_name(
        self, requirement: str, is_present: bool
    ) -> None:
        assert presence.is_present(parse(requirement)) is is_present

    def test_an_installer_is_told_of_them(self, image: Add) -> None:
        assert presence.aliases() == {"tensorflow": "2.17.0", "tensorflow-io": "2.17.0"}
        assert presence.image_versions() == {"tf-nightly-tpu": "2.17.0"}
        image("tensorflow", "2.16.1")
        assert presence.aliases() == {"tensorflow-io": "2.17.0"}
        assert presence.installed_version("tensorflow") == "2.16.1", "its own name counts first"

    def test_a_message_names_the_version_that_does_not_fit(self) -> None:
        assert presence.described(parse("tensorflow>=3")) == "tensorflow>=3 (the host has 2.17.0)"
        assert presence.described(parse("tensorflow>=2")) == "tensorflow>=2"
        assert presence.described(parse("keras>=3")) == "keras>=3"
        secret = "tensorflow @ https://user:password@h/tensorflow.whl"
        assert presence.described(parse(secret)) == "tensorflow @ https://***@h/tensorflow.whl"


class TestModules:
    @pytest.mark.parametrize(
        ("requirement", "is_present"),
        [
            ("own-of-test", True),
            ("own-of-test>=1", False),
            ("own-of-test[x]", False),
            ("other-of-test", False),
        ],
    )
    def test_one_without_a_distribution_has_no_version(
        self, image: Add, tmp_path: Path, requirement: str, is_present: bool
    ) -> None:
        (tmp_path / "own_of_test.py").write_text("")
        assert presence.is_present(parse(requirement)) is is_present

    def test_one_that_only_this_program_brings_is_not_of_the_image(self, image: Add, tmp_path: Path) -> None:
        """As `packaging`, which the script does not see."""
        with zipfile.ZipFile(tmp_path / "worker.zip", "w") as program:
            program.writestr("own_of_test.py", "")
        sys.path.append(str(tmp_path / "worker.zip"))  # it is the image's list
        assert importlib.util.find_spec("own_of_test")
        assert not presence.is_present(parse("own-of-test"))


def test_the_first_of_two_distributions_of_a_name_is_the_one_that_is_imported(
    image: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image("jax", "0.4.30", folder="own")
    image("jax", "0.4.1", folder="image")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "own"), str(tmp_path / "image")])
    presence._distributions.cache_clear()
    assert presence.image_versions() == {"jax": "0.4.30"}


def test_what_an_installer_could_not_read_is_left_out(image: Add) -> None:
    image("good", "1.0")
    image("old", "0.1.36ubuntu1-x!", modules="old_module")
    image("-odd", "1.0")
    assert presence.image_versions() == {"good": "1.0"}
    assert presence.aliases() == {}
