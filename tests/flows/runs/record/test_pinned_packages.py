"""Which packages an archive asks for."""

from __future__ import annotations

import msgspec
import pytest

from tests.bucket_objects.records import RUN
from tpuctl.errors import StateError
from tpuctl.flows.runs.record.export import PinnedPackages, pinned_packages
from tpuctl.job_header import Header
from tpuctl.provenance import HostEnvironment

ENVIRONMENT = HostEnvironment(
    "3.11.7",
    installed={"einops": "0.8", "own": "1", "numpy": "2.0"},
    image={"numpy": "1.26", "pyyaml": "6.0", "requests": "2.1", "bad": "1 --pre", "jax": "0.4+x"},
    urls={"own": "git+https://host/own@1"},
)


def pinned(
    *dependencies: str, code: str = "", environment: HostEnvironment | None = ENVIRONMENT
) -> PinnedPackages:
    record = msgspec.structs.replace(RUN, dependencies=dependencies, pins={})
    return pinned_packages(record, Header(), environment, [code.encode()])


def test_what_was_asked_for_and_installed_has_its_version() -> None:
    lines = pinned(
        "numpy>=1", "own @ git+https://user:secret@host/own", 'requests[socks]; python_version>"3"'
    )
    assert lines.requirements == (
        "einops==0.8", "numpy==2.0", "own @ git+https://host/own",
        'requests[socks]==2.1; python_version > "3"',
    )  # fmt: skip
    assert lines.constraints == ("einops==0.8", "jax==0.4+x", "numpy==2.0", "pyyaml==6.0", "requests==2.1")


def test_a_repository_without_a_name_stays_without_one() -> None:
    assert pinned("git+https://me:token@host/CommonLoopUtils").requirements == (
        "git+https://host/CommonLoopUtils", "einops==0.8", "numpy==2.0",
    )  # fmt: skip


def test_what_the_code_imports_of_the_image_is_asked_for() -> None:
    code = "import os, jax.numpy\nfrom yaml import load\nfrom . import requests\nimport own, bad"
    assert pinned(code=code).requirements == (
        "einops==0.8", "jax==0.4+x", "numpy==2.0", "pyyaml==6.0"
    )  # fmt: skip
    assert pinned(code="this is no Python\0").requirements == pinned().requirements


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python"), ("PIL.Image", "pillow"), ("sklearn.datasets", "scikit-learn"),
        ("skimage", "scikit-image"), ("yaml", "pyyaml"), ("flax", "flax"), ("my_own", "my-own"),
    ],
)  # fmt: skip
def test_a_module_is_of_the_package_that_has_it(module: str, package: str) -> None:
    environment = HostEnvironment("3.11.7", image={package: "1.2"})
    assert pinned(code=f"import {module}", environment=environment).requirements == (f"{package}==1.2",)
    assert pinned(code=f"from {module} import x", environment=environment).requirements == (
        f"{package}==1.2",
    )


def test_without_a_record_of_packages_they_are_as_the_script_asks() -> None:
    assert pinned("numpy>=1", environment=None) == PinnedPackages(("numpy>=1",), ())


def test_an_address_that_only_the_host_names_is_no_line() -> None:
    lines = pinned(code="import own")
    assert not any("own" in line for line in (*lines.requirements, *lines.constraints))
    assert lines.unnamed == ("own",)
    assert pinned("own @ git+https://host/own").unnamed == ()


OPTION = "\n--find-links http://evil.example/simple"


def test_nothing_that_a_host_says_is_an_option_of_pip() -> None:
    versions = {
        "numpy": f"1{OPTION}",
        f"q{OPTION}": "1",
        "x": "1 --pre",
        "--pre": "1",
        "${HOME}": "1",
        "y": "2",
    }
    urls = {"einops": f"https://evil.example/e.whl{OPTION}", f"z{OPTION}": "https://evil.example/z.whl"}
    environment = HostEnvironment("3.11.7", installed={**versions, "einops": "1"}, image=versions, urls=urls)
    lines = pinned("numpy>=1", code="import x, einops", environment=environment)
    assert lines == PinnedPackages(("numpy>=1", "y==2"), ("y==2",), ("einops",))


@pytest.mark.parametrize("text", ["--find-links http://evil.example/simple", f"numpy{OPTION}", "../x.whl"])
def test_a_record_that_asks_for_anything_but_requirements_is_wrong(text: str) -> None:
    with pytest.raises(StateError, match="is not a requirement"):
        pinned(text)
