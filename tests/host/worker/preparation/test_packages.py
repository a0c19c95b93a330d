"""What a header requires is installed beside the image: nothing of it is hidden, nothing installed twice."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from tests.host.worker.preparation.wheels import wheel
from tpuctl.host.worker.preparation import installers, packages, presence

Ensure = Callable[..., str]
JAMMY = {
    "requests": "2.25.1", "urllib3": "1.26.5", "PyYAML": "5.4.1", "cryptography": "3.4.8",
    "certifi": "2020.6.20", "jsonschema": "3.2.0", "idna": "3.3",
    "six": "1.16.0", "pyparsing": "2.4.7", "distro": "1.7.0",
}  # fmt: skip
"""Python packages of Ubuntu 22.04, as `pip list` of a TPU VM shows them."""


@pytest.fixture
def small_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The image has the installers, and not the 150 distributions of this Python, which pip reads again."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    libraries = [path for path in sys.path if path.startswith(tuple(own)) and "site-packages" not in path]
    folder = tmp_path / "installers"
    folder.mkdir()
    for name in ("pip", "uv"):
        distribution = next(iter(metadata.distributions(name=name)), None)
        if distribution is not None:
            source = Path(str(distribution.locate_file("")))
            for path in (source / name, *source.glob(f"{name}-*.dist-info")):
                (folder / path.name).symlink_to(path)
    monkeypatch.setattr(sys, "path", [*libraries, str(folder)])
    presence._distributions.cache_clear()
    yield
    presence._distributions.cache_clear()


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Add a distribution to what this Python has, as a host's image brings it."""
    folder = tmp_path / "image"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    presence._distributions.cache_clear()

    def add(name: str, version: str, requires: str = "", modules: str = "") -> None:
        with zipfile.ZipFile(wheel(tmp_path / "image wheels", name, version, requires, modules)) as archive:
            archive.extractall(folder)

    yield add
    presence._distributions.cache_clear()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where pip finds wheels, and nothing elsewhere."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "index"


@pytest.fixture
def ensure(tmp_path: Path) -> Ensure:
    """Call `packages.ensure` with the folders of this test."""

    def call(
        *dependencies: str, is_own: bool = False, wheelhouse: str = "", pins: Sequence[str] = (),
        constraints: Sequence[str] = (), sources: Sequence[str] = (),
    ) -> str:  # fmt: skip
        root, log = tmp_path / "packages", tmp_path / "log"
        return packages.ensure(
            dependencies, "", str(root), str(log), is_own, wheelhouse, pins, "", constraints, sources
        )

    return call


def content(folder: str) -> set[str]:
    """Return the names of the distributions in a folder."""
    return {path.name.removesuffix(".dist-info") for path in Path(folder).glob("*.dist-info")}


@pytest.mark.usefixtures("small_image")
class TestImage:
    def test_what_a_package_requires_is_not_installed_a_second_time(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.5.0")
        wheel(index, "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.4\n")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}

    def test_an_older_release_that_fits_the_image_is_chosen(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.5.0")
        wheel(index, "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.4\n")
        wheel(index, "optax_of_test", "2.0", "Requires-Dist: jaxlib>=0.5\n")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}

    def test_a_conflict_with_the_image_is_told_with_both_ways_out(
        self, image: Callable[..., None], index: Path, ensure: Ensure, tmp_path: Path
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.5.0")
        wheel(index, "optax_of_test", "2.0", "Requires-Dist: jaxlib>=0.5\n")
        with pytest.raises(packages.PackageError) as caught:
            ensure("optax-of-test")
        assert str(caught.value) == (
            "optax-of-test 2.0 requires jaxlib>=0.5, and the host's image has jaxlib 0.4.1. "
            "Name jaxlib in dependencies to hide the image's, "
            'or set packages = "own" in [tool.tpuctl] (see the log)'
        )
        assert [path.name for path in (tmp_path / "packages").iterdir() if path.suffix != ".lock"] == []

    def test_what_was_held_and_what_is_older_by_it_is_said_once(
        self, image: Callable[..., None], index: Path, ensure: Ensure, tmp_path: Path
    ) -> None:
        image("jaxlib", "0.4.1", "Requires-Dist: scipy\n")
        image("scipy", "1.0")
        wheel(index, "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.4\n")
        wheel(index, "optax_of_test", "2.0", "Requires-Dist: jaxlib>=0.5\n")
        wheel(index, "jaxlib", "0.5.0")
        ensure("optax-of-test")
        ensure("optax-of-test")
        said = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("[tpuctl]")]
        assert said[1:] == [
            "[tpuctl] what the frameworks of the host's image need stays: jaxlib 0.4.1, 1 more",
            "[tpuctl] optax-of-test is 1.0 and not 2.0, because of that",
            "[tpuctl] the packages of an earlier run with the same requirements are used",
        ]

    @pytest.mark.parametrize("frameworks", [(), ("tensorflow",)])
    def test_tools_of_the_operating_system_make_nothing_older(
        self, image: Callable[..., None], index: Path, ensure: Ensure, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch, frameworks: Sequence[str],
    ) -> None:  # fmt: skip
        """Ubuntu 22.04 has Python packages of its own: `datasets` of today requires newer ones."""
        monkeypatch.setattr(presence, "SYSTEM", str(tmp_path / "image"))
        for name, version in JAMMY.items():
            image(name, version)
        other = tmp_path / "framework"
        for name in frameworks:
            with zipfile.ZipFile(
                wheel(other / "wheels", name, "2.18.0", "Requires-Dist: requests\n")
            ) as archive:
                archive.extractall(other)
        monkeypatch.setattr(sys, "path", [str(other), *sys.path])
        presence._distributions.cache_clear()
        for version in ("2.25.1", "2.32.5"):
            wheel(index, "requests", version)
        for version, requests in {"2.19.1": "2.19", "4.4.0": "2.32.2"}.items():
            requires = f"Requires-Dist: requests>={requests}\nRequires-Dist: PyYAML>=5.1\n"
            wheel(index, "datasets", version, requires)
        assert content(ensure("datasets")) == {"datasets-4.4.0", "requests-2.32.5"}

    def test_what_the_header_names_itself_hides_the_images(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.5.0")
        wheel(index, "optax_of_test", "2.0", "Requires-Dist: jaxlib>=0.5\n")
        folder = ensure("optax-of-test", "jaxlib>=0.5")
        assert content(folder) == {"optax_of_test-2.0", "jaxlib-0.5.0"}
        assert presence.installed_version("jaxlib") == "0.4.1", "the image is as it was"

    def test_a_build_under_another_name_is_not_hidden(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        """As TPU images bring TensorFlow."""
        image("tensorflow_tpu", "2.17.0", modules="tensorflow\n")
        wheel(index, "tensorflow", "2.17.0")
        wheel(index, "addons_of_test", "1.0", "Requires-Dist: tensorflow>=2\n")
        assert content(ensure("addons-of-test")) == {"addons_of_test-1.0"}

    @pytest.mark.parametrize("first", ["tensorflow", "tensorflow-tpu"])
    def test_a_second_tensorflow_that_a_package_requires_does_not_replace_the_one_for_tpus(
        self, index: Path, ensure: Ensure, first: str
    ) -> None:
        wheel(index, "tensorflow", "2.18.0", "Requires-Dist: tensorflow-tpu\n" * (first != "tensorflow"))
        tpus = "Requires-Dist: tensorflow\n" * (first == "tensorflow")  # pip installs what is required first
        with zipfile.ZipFile(wheel(index, "tensorflow_tpu", "2.17.0", tpus), "a") as archive:
            archive.writestr("tensorflow.py", "WORD = 'of TPUs'\n")
        wheel(index, "addons_of_test", "1.0", "Requires-Dist: tensorflow>=2\n")
        folder = ensure("addons-of-test", "tensorflow-tpu")
        assert content(folder) == {"addons_of_test-1.0", "tensorflow_tpu-2.17.0"}
        assert "of TPUs" in (Path(folder) / "tensorflow.py").read_text()

    def test_what_has_no_name_or_no_version_is_no_distribution_of_the_image(
        self, image: Callable[..., None], tmp_path: Path
    ) -> None:
        image("jaxlib", "0.4.1")
        for name, text in {"nameless": "Version: 1.0\n", "unversioned": "Name: unversioned\n"}.items():
            folder = tmp_path / "image" / f"{name}-1.0.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{text}")
            (folder / "top_level.txt").write_text(f"module_of_{name}")
        names = {*presence.image_versions(), *presence.aliases()}
        assert "jaxlib" in names
        assert not names & {"nameless", "unversioned", "module-of-nameless", "module-of-unversioned"}
        assert presence.installed_version("unversioned") is None
        assert presence.installed_version("module-of-unversioned") is None

    def test_a_version_from_before_pep_440_is_no_constraint(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("debian_of_test", "0.1.36ubuntu1-x!")
        wheel(index, "optax_of_test")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}

    def test_own_packages_take_nothing_of_the_image(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(index, "jaxlib", "0.5.0")
        wheel(index, "optax_of_test", "2.0", "Requires-Dist: jaxlib\n")
        assert content(ensure("optax-of-test", is_own=True)) == {"optax_of_test-2.0", "jaxlib-0.5.0"}

    def test_the_url_of_a_requirement_is_on_no_command_line(
        self, index: Path, ensure: Ensure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands = []

        def call(command: list[str], **_: object) -> int:
            commands.append(command)
            return 1

        monkeypatch.setattr(installers.subprocess, "call", call)  # what a process list would show
        with pytest.raises(packages.PackageError):
            ensure("x @ https://user:password@localhost:9/x-1-py3-none-any.whl")
        assert commands
        assert "password" not in str(commands)


@pytest.mark.usefixtures("small_image")
class TestUv:
    @pytest.fixture(autouse=True)
    def _sources(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("uv", reason="uv is not installed here")
        for name in (*installers._PIP_SOURCES, "PYTHONPATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(installers, "_PIP_FILES", ())
        settings = tmp_path / "uv.toml"
        settings.write_text(f'no-index = true\nfind-links = ["{tmp_path / "index"}"]\n')
        monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    def test_it_installs_what_the_image_lacks(
        self, image: Callable[..., None], ensure: Ensure, tmp_path: Path
    ) -> None:
        image("jaxlib", "0.4.1")
        wheel(tmp_path / "index", "jaxlib", "0.4.1")
        wheel(tmp_path / "index", "jaxlib", "0.5.0")
        wheel(tmp_path / "index", "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.4\n")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}
        assert "Installed 1 package" in (tmp_path / "log").read_text(), "it was uv"

    def test_it_leaves_what_the_image_has_and_what_may_be_newer_is_newer_where_it_must(
        self, image: Callable[..., None], ensure: Ensure, tmp_path: Path
    ) -> None:
        image("requests", "2.25.1")
        for version in ("2.25.1", "2.32.5"):
            wheel(tmp_path / "index", "requests", version)
        wheel(tmp_path / "index", "light_of_test", "1.0", "Requires-Dist: requests>=2\n")
        wheel(tmp_path / "index", "new_of_test", "1.0", "Requires-Dist: requests>=2.32\n")
        assert content(ensure("light-of-test")) == {"light_of_test-1.0"}
        assert content(ensure("new-of-test")) == {"new_of_test-1.0", "requests-2.32.5"}

    def test_pip_decides_where_the_image_has_what_no_index_has(
        self, image: Callable[..., None], ensure: Ensure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        image("jaxlib", "0.4.1+tpu")
        wheel(tmp_path / "index", "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.4\n")
        real = installers._uv

        def uv() -> object:
            command = real()
            monkeypatch.setenv("PIP_NO_INDEX", "1")
            monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
            return command

        monkeypatch.setattr(installers, "_uv", uv)
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}

    def test_a_pip_that_has_sources_of_its_own_is_used_instead(
        self, index: Path, ensure: Ensure, tmp_path: Path
    ) -> None:
        wheel(index, "optax_of_test")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}
        first, *more = (tmp_path / "log").read_text().splitlines()
        assert first == "[tpuctl] installing optax-of-test", "before what pip itself writes"
        assert any("Successfully installed" in line for line in more), "it was pip"


@pytest.mark.usefixtures("small_image")
class TestWheelhouse:
    def test_packages_come_from_it_alone_and_the_same_wheels_elsewhere_are_the_same_set(
        self, ensure: Ensure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_INDEX_URL", "https://localhost:9/simple")  # a host without a network
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        path = wheel(tmp_path / "wheels", "optax_of_test")
        first = ensure("optax-of-test", wheelhouse=str(tmp_path / "wheels"))
        assert content(first) == {"optax_of_test-1.0"}
        (tmp_path / "wheels").rename(tmp_path / "next")
        assert ensure("optax-of-test", wheelhouse=str(tmp_path / "next")) == first
        wheel(tmp_path / "next", "optax_of_test", "2.0")
        assert content(ensure("optax-of-test", wheelhouse=str(tmp_path / "next"))) == {"optax_of_test-2.0"}
        assert path.name == "optax_of_test-1.0-py3-none-any.whl"


@pytest.mark.usefixtures("small_image")
class TestRuns:
    def test_a_second_run_installs_nothing(self, index: Path, ensure: Ensure, tmp_path: Path) -> None:
        wheel(index, "optax_of_test")
        first = ensure("optax-of-test")
        (index / "optax_of_test-1.0-py3-none-any.whl").unlink()
        assert ensure("optax-of-test") == first
        lines = (tmp_path / "log").read_text().splitlines()
        assert lines[-1] == "[tpuctl] the packages of an earlier run with the same requirements are used"

    def test_another_image_is_another_set(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        wheel(index, "optax_of_test")
        first = ensure("optax-of-test")
        image("jaxlib", "0.4.1")
        presence._distributions.cache_clear()
        assert ensure("optax-of-test") != first

    def test_two_at_once_install_once(self, index: Path, ensure: Ensure, tmp_path: Path) -> None:
        wheel(index, "optax_of_test")
        folders: list[str] = []
        threads = [
            threading.Thread(target=lambda: folders.append(ensure("optax-of-test")), daemon=True)
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(folders) == 3
        assert len(set(folders)) == 1
        assert (tmp_path / "log").read_text().count("[tpuctl] installing") == 1

    def test_an_installation_that_fails_leaves_nothing_and_the_next_one_starts_anew(
        self, index: Path, ensure: Ensure, tmp_path: Path
    ) -> None:
        with pytest.raises(packages.PackageError, match="pip could not install optax-of-test"):
            ensure("optax-of-test")
        wheel(index, "optax_of_test")
        assert content(ensure("optax-of-test")) == {"optax_of_test-1.0"}

    def test_a_full_disk_is_told_as_one(
        self, index: Path, ensure: Ensure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "import sys; sys.exit('ERROR: Could not install packages: [Errno 28] No space left on device')"
        real = subprocess.call
        monkeypatch.setattr(  # a pip that meets a full disk
            installers.subprocess, "call", lambda _, **options: real([sys.executable, "-c", text], **options)
        )
        with pytest.raises(OSError, match="no space on the disk for optax-of-test") as caught:
            ensure("optax-of-test")
        assert caught.value.errno == 28


class TestThisPython:
    def test_console_files_of_the_installation_do_not_stay(self, index: Path, ensure: Ensure) -> None:
        wheel(index, "optax_of_test")
        folder = ensure("optax-of-test")
        assert not [name for name in os.listdir(folder) if name.endswith(".pth")]
        assert "optax_of_test.py" in os.listdir(folder)


@pytest.mark.usefixtures("small_image")
class TestPins:
    """A run that repeats another one gets the versions that the other had."""

    def test_they_decide_about_what_is_installed_and_what_comes_with_it(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("jaxlib", "0.5.0")
        for version in ("0.4.1", "0.5.0"):
            wheel(index, "jaxlib", version)
        for version in ("1.0", "2.0"):
            wheel(index, "optax_of_test", version, "Requires-Dist: jaxlib>=0.4\n")
        pins = ("optax-of-test==1.0", "jaxlib==0.4.1", "never-needed==7")
        assert content(ensure("optax-of-test", pins=pins)) == {"optax_of_test-1.0", "jaxlib-0.4.1"}

    def test_another_version_on_the_image_is_not_present(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("optax_of_test", "2.0")
        wheel(index, "optax_of_test", "1.0")
        assert ensure("optax-of-test", pins=("optax-of-test==2.0",)) == ""
        assert content(ensure("optax-of-test", pins=("optax-of-test==1.0",))) == {"optax_of_test-1.0"}

    def test_own_packages_keep_to_them(self, index: Path, ensure: Ensure) -> None:
        for version in ("1.0", "2.0"):
            wheel(index, "optax_of_test", version)
        folder = ensure("optax-of-test", is_own=True, pins=("optax-of-test==1.0",))
        assert content(folder) == {"optax_of_test-1.0"}

    def test_a_conflict_with_one_says_whose_it_is(
        self, image: Callable[..., None], index: Path, ensure: Ensure
    ) -> None:
        image("other_of_test", "1.0")
        for version in ("0.4.1", "0.5.0"):
            wheel(index, "jaxlib", version)
        wheel(index, "optax_of_test", "1.0", "Requires-Dist: jaxlib>=0.5\n")
        with pytest.raises(packages.PackageError, match=r"pinned to jaxlib 0\.4\.1"):
            ensure("optax-of-test", pins=("jaxlib==0.4.1",))

    @pytest.mark.parametrize("pin", ["jax", "jax>=1", "--pre", "jax @ https://localhost/x.whl"])
    def test_what_pins_no_version_is_refused(self, ensure: Ensure, pin: str) -> None:
        with pytest.raises(packages.PackageError):
            ensure("json", pins=(pin,))


@pytest.mark.usefixtures("small_image")
class TestProjects:
    """What the files of a project say besides requirements."""

    def test_its_constraints_hold_for_what_is_installed(self, index: Path, ensure: Ensure) -> None:
        for version in ("1.0", "2.0"):
            wheel(index, "optax_of_test", version)
        folder = ensure("optax-of-test", constraints=["optax-of-test<2", "never-needed<7"])
        assert content(folder) == {"optax_of_test-1.0"}

    @pytest.mark.parametrize(
        "source", ["--pre", "--find-links /etc", "--index-url https://x/s --pre", "--index-url http://x/s"]
    )
    def test_an_option_that_says_anything_but_a_place_is_refused(self, ensure: Ensure, source: str) -> None:
        with pytest.raises(packages.PackageError, match="is no place of packages"):
            ensure("optax-of-test", sources=[source])
