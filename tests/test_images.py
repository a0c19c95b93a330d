"""Which runtime version a framework gets, and which packages it needs there."""

from __future__ import annotations

import itertools
import random

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.errors import UsageError
from tpuctl.images import IMAGES, Place, default_runtime, devices, distributions, image

BELOW, ABOVE = "v5p-and-below", "v5e-and-v6"
V18 = [f"tpu-vm-tf-2.18.0{pod}-pjrt-{group}" for pod in ("", "-pod") for group in (BELOW, ABOVE)]
RUNTIMES = [
    "tpu-ubuntu2204-base", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv5", "v2-alpha-tpuv6e", "tpu-vm-tf-nightly",
    "tpu-vm-base", "tpu-vm-tf-2.9.3", "tpu-vm-tf-2.10.0-v4", "tpu-vm-tf-2.18.0-se", "tpu-vm-tf-2.17.1-pjrt",
    "tpu-vm-tf-2.17.1-pod-pjrt", *V18,
]  # fmt: skip


@pytest.mark.parametrize(
    ("type_name", "runtime"),
    [
        ("v2-8", f"tpu-vm-tf-2.18.0-pjrt-{BELOW}"),
        ("v3-8", f"tpu-vm-tf-2.18.0-pjrt-{BELOW}"),
        ("v3-32", f"tpu-vm-tf-2.18.0-pod-pjrt-{BELOW}"),
        ("v4-8", f"tpu-vm-tf-2.18.0-pjrt-{BELOW}"),
        ("v5p-8", f"tpu-vm-tf-2.18.0-pjrt-{BELOW}"),
        ("v5p-16", f"tpu-vm-tf-2.18.0-pod-pjrt-{BELOW}"),
        ("v5litepod-4", f"tpu-vm-tf-2.18.0-pjrt-{ABOVE}"),
        ("v5litepod-16", f"tpu-vm-tf-2.18.0-pod-pjrt-{ABOVE}"),
        ("v6e-8", f"tpu-vm-tf-2.18.0-pjrt-{ABOVE}"),
        ("v6e-16", f"tpu-vm-tf-2.18.0-pod-pjrt-{ABOVE}"),
    ],
)
def test_tensorflow_gets_the_newest_image_of_the_generation_and_of_slices_in_any_order(
    type_name: str, runtime: str
) -> None:
    for seed in range(20):
        names = random.Random(seed).sample(RUNTIMES, len(RUNTIMES))
        assert default_runtime(accelerator(type_name), "tensorflow", names) == runtime


@pytest.mark.parametrize("framework", ["jax", "pytorch", ""])
def test_others_get_the_plain_image_of_the_generation(framework: str) -> None:
    chosen = {
        name: default_runtime(accelerator(name), framework, IMAGES)
        for name in ("v2-8", "v3-32", "v4-8", "v5litepod-16", "v5p-8", "v6e-8")
    }
    assert chosen == {
        "v2-8": "tpu-ubuntu2204-base", "v3-32": "tpu-ubuntu2204-base", "v4-8": "tpu-ubuntu2204-base",
        "v5litepod-16": "v2-alpha-tpuv5-lite", "v5p-8": "v2-alpha-tpuv5", "v6e-8": "v2-alpha-tpuv6e",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("type_name", "offered", "words"),
    [
        ("v3-8", ["tpu-ubuntu2204-base"], "--runtime tpu-ubuntu2204-base"),
        ("v6e-16", ["v2-alpha-tpuv6e", f"tpu-vm-tf-2.18.0-pod-pjrt-{BELOW}"], "another zone"),
        ("v6e-8", ["tpu-vm-tf-2.16.1-pjrt"], "--runtime v2-alpha-tpuv6e"),
        ("v5p-8", ["tpu-vm-tf-2.17.0-se"], "--runtime v2-alpha-tpuv5"),
        ("tpu7x-8", list(IMAGES), "v6e or older"),
    ],
)
def test_where_no_image_has_tensorflow_the_error_names_the_way_out(
    type_name: str, offered: list[str], words: str
) -> None:
    with pytest.raises(UsageError) as error:
        default_runtime(accelerator(type_name), "tensorflow", offered)
    assert words in str(error.value.hint)


def test_the_simulator_has_real_names_alone_and_knows_each() -> None:
    assert not [name for name in IMAGES if "2.16.0" in name or "nightly" in name]
    assert all(found == image(name) for name, found in IMAGES.items())
    assert image("tpu-vm-base") is None
    pod = image("tpu-vm-tf-2.19.0-pod-pjrt")
    assert pod
    assert (pod.holder, pod.several_hosts, pod.serves(4)) == ("tpu-runtime", True, ("tensorflow",))


def test_chips_are_accel_files_up_to_v4_and_vfio_groups_after_it() -> None:
    assert devices(accelerator("v4-8"))[-1] == "/dev/accel3"
    assert devices(accelerator("v5litepod-8"))[0] == "/dev/vfio/0"


def place(type_name: str = "v6e-8", runtime: str = "", requires_python: str = "") -> Place:
    kind = accelerator(type_name)
    return Place(image(runtime or kind.base_runtime), kind, requires_python)


@pytest.mark.parametrize(
    ("framework", "wanted", "installed"),
    [
        ("jax", "jax", "jax[tpu]"),
        ("jax", "jax[tpu]==0.6.2", "jax[tpu]==0.6.2"),
        ("jax", "jax[k8s]>=0.6; sys_platform == 'linux'", 'jax[k8s,tpu]>=0.6; sys_platform == "linux"'),
        ("jax", "jax[cuda12]==0.6.2", "jax[tpu]==0.6.2"),
        ("jax", "jax[cuda12,k8s,tpu]", "jax[k8s,tpu]"),
        ("jax", "jax @ https://x.org/jax.whl", "jax @ https://x.org/jax.whl"),
        ("jax", "flax optax", "flax optax jax[tpu]"),
        ("jax", "jax tensorflow torch", "jax[tpu] tensorflow torch"),
        ("jax", "numpy", "numpy"),
        ("tensorflow", "tensorflow numpy", "tensorflow-tpu numpy"),
        ("tensorflow", "tensorflow~=2.19.0", "tensorflow-tpu~=2.19.0"),
        ("tensorflow", "tensorflow jax", "tensorflow-tpu jax"),
        ("pytorch", "torch", "torch==2.9.* torch_xla[tpu]==2.9.*"),
        ("pytorch", "torch==2.7.0", "torch==2.7.0 torch_xla[tpu]==2.7.*"),
        ("pytorch", "torch torch_xla==2.8.0", "torch==2.8.* torch_xla[tpu]==2.8.0"),
        ("pytorch", "torch>=2.5,<2.9", "torch>=2.5,<2.9 torch_xla[tpu]==2.8.*"),
        ("pytorch", "torch torch_tpu", "torch torch_tpu"),
        ("", "jax numpy", "jax numpy"),
    ],
)
def test_a_plain_image_gets_the_package_that_reaches_the_chips(
    framework: str, wanted: str, installed: str
) -> None:
    texts = [wanted] if " @ " in wanted or ";" in wanted else wanted.split()
    found = distributions(texts, framework, place())
    assert " ".join(found.requirements) == installed
    assert bool(found.reason) == (installed != wanted)


@pytest.mark.parametrize(
    ("framework", "wanted", "page"),
    [
        ("jax", "jax==0.4.30", "jax-releases/libtpu_releases.html"),
        ("jax", "jax<0.5.1", "jax-releases/libtpu_releases.html"),
        ("jax", "jax~=0.5.0", ""),
        ("jax", "jax==0.5.*", ""),
        ("jax", "jax>=0.4,<0.7", ""),
        ("tensorflow", "tensorflow==2.17.1", "libtpu-tf-releases/index.html"),
        ("tensorflow", "tensorflow<2.19", "libtpu-tf-releases/index.html"),
        ("tensorflow", "tensorflow>=2.17", ""),
        ("pytorch", "torch==2.5.1", "libtpu-releases/index.html"),
        ("pytorch", "torch", ""),
    ],
)
def test_older_releases_get_googles_page_of_libtpu(framework: str, wanted: str, page: str) -> None:
    found = distributions([wanted], framework, place("v3-8"))
    assert [each.partition("googleapis.com/")[2] for each in found.find_links] == ([page] if page else [])
    assert page in found.reason


def test_a_run_that_is_pinned_to_an_older_release_gets_the_page_too() -> None:
    assert not distributions(["jax"], "jax", place()).find_links
    assert distributions(["jax"], "jax", place(), {"jax": "0.4.30"}).find_links


def test_an_image_that_has_tensorflow_keeps_it() -> None:
    found = distributions(["tensorflow>=2.18"], "tensorflow", place("v3-8", f"tpu-vm-tf-2.18.0-pjrt-{BELOW}"))
    assert (found.requirements, found.reason) == (("tensorflow>=2.18",), "")
    other = distributions(["tensorflow==2.17.1"], "tensorflow", place("v3-8", "tpu-vm-tf-2.15.0-pjrt"))
    assert other.requirements == ("tensorflow-tpu==2.17.1",)


@pytest.mark.parametrize(
    ("framework", "wanted", "where", "words"),
    [
        ("tensorflow", "tensorflow", place("tpu7x-8"), "does not run on tpu7x"),
        ("tensorflow", "tensorflow==2.16.1", place("v6e-8"), "no tensorflow==2.16.1 for v6e"),
        ("tensorflow", "tensorflow==2.19.0", place("v3-8"), "2.19.1"),
        ("tensorflow", "tensorflow>=2.21", place("v3-8"), "2.20.0"),
        ("tensorflow", "tensorflow==2.17.0", place("v3-32", "tpu-vm-tf-2.19.0-pod-pjrt"), "2.19.0"),
        ("jax", "jax>=0.7", place(), "its last jax is 0.6.2"),
        ("pytorch", "torch>=2.11", place(), "needs Python 3.11"),
        ("pytorch", "torch==2.10.0", place(requires_python=">=3.11"), "Neither torch_xla nor torch_tpu"),
    ],
)
def test_what_cannot_work_is_refused(framework: str, wanted: str, where: Place, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        distributions([wanted], framework, where)


def test_a_program_with_a_python_of_its_own_is_not_held_to_the_images() -> None:
    newer = place(requires_python=">=3.12")
    assert distributions(["jax>=0.7"], "jax", newer).requirements == ("jax[tpu]>=0.7",)
    assert distributions(["torch>=2.11"], "pytorch", newer).requirements == ("torch>=2.11", "torch_tpu")


def test_what_is_installed_is_stable_when_it_is_decided_again() -> None:
    for framework, wanted in itertools.product(
        ("jax", "tensorflow", "pytorch"), ("jax", "torch", "tensorflow")
    ):
        once = distributions([wanted], framework, place())
        assert distributions(once.requirements, framework, place()).requirements == once.requirements
