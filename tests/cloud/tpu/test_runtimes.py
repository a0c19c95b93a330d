"""Which runtime version a framework gets."""

from __future__ import annotations

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.cloud.tpu.runtimes import default_runtime, tensorflow_runtimes

RUNTIMES = [
    "tpu-ubuntu2204-base",
    "tpu-vm-tf-2.9.3",
    "tpu-vm-tf-2.18.0",
    "tpu-vm-tf-2.18.0-pjrt",
    "tpu-vm-tf-2.18.0-pod",
    "tpu-vm-tf-2.17.1",
    "tpu-vm-tf-2.17.1-pod-pjrt",
    "tpu-vm-tf-nightly",
    "v2-alpha-tpuv6e",
]


def test_tensorflow_images_of_one_host_come_newest_first_by_number() -> None:
    assert tensorflow_runtimes(RUNTIMES, hosts=1) == [
        "tpu-vm-tf-2.18.0-pjrt",
        "tpu-vm-tf-2.18.0",
        "tpu-vm-tf-2.17.1",
        "tpu-vm-tf-2.9.3",
        "tpu-vm-tf-nightly",
    ]


def test_a_slice_gets_only_images_for_slices() -> None:
    images = ["tpu-vm-tf-2.18.0-pod", "tpu-vm-tf-2.17.1-pod-pjrt"]
    assert tensorflow_runtimes(RUNTIMES, hosts=4) == tensorflow_runtimes(RUNTIMES, hosts=2) == images


def test_no_image_is_no_error() -> None:
    assert tensorflow_runtimes(["v2-alpha-tpuv6e"], hosts=1) == []


@pytest.mark.parametrize(
    ("type_name", "framework", "runtime"),
    [
        ("v3-8", "tensorflow", "tpu-vm-tf-2.18.0-pjrt"),
        ("v3-32", "tensorflow", "tpu-vm-tf-2.18.0-pod"),
        ("v2-8", "tensorflow", "tpu-vm-tf-2.18.0-pjrt"),
        ("v4-8", "tensorflow", "tpu-vm-tf-2.18.0-pjrt"),
        ("v5litepod-4", "tensorflow", accelerator("v5litepod-4").base_runtime),
        ("v3-8", "jax", "tpu-ubuntu2204-base"),
        ("v6e-8", "tensorflow", "v2-alpha-tpuv6e"),
    ],
)
def test_the_default_is_the_newest_image_of_the_framework_else_the_plain_one(
    type_name: str, framework: str, runtime: str
) -> None:
    assert default_runtime(accelerator(type_name), framework, RUNTIMES) == runtime


def test_a_zone_without_tensorflow_images_gets_the_plain_one() -> None:
    assert default_runtime(accelerator("v3-8"), "tensorflow", []) == "tpu-ubuntu2204-base"
