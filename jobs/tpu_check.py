# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# framework = "tensorflow"
# ///
"""Check a Cloud TPU before its first training: are its chips found, are its results right, is it fast?

    find      find the TPU and list its devices
    place     multiply small matrices on TPU:0 and on every replica, and check each value
    multiply  multiply large bfloat16 matrices in one function, and compare TFLOP/s with the chip's peak
    copy      copy matrices from the host to the devices, and measure GB/s

Prints each problem. Exits with 0 if there is none, else with 1. Without a TPU the checks run on the CPU, and
the missing TPU is a problem unless --cpu is given.

Environment variables:

    TPU_NAME                `local` on a TPU VM, the name of the node on a slice of several hosts
    TPU_ACCELERATOR_TYPE    type such as `v3-8`; without it (or --accelerator) the metadata server says it
    TPUCTL_MODEL_DIR        folder or gs:// address for result.json, with all figures
    TPUCTL_SIM_TPU          set by tpuctl's simulator, which emulates a TPU on the CPU: speed is not checked
"""

from __future__ import annotations

import argparse
import glob
import json
import math
import os
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from training.devices import say
from training.roofline import CHIPS

CHIP_FILES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
"""Device files of the chips on a TPU VM: up to v4, and from v5e on."""

LEFT, RIGHT = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
PRODUCT = [[22.0, 28.0], [49.0, 64.0]]

SIZES = (512, 1024, 2048, 4096, 8192)
"""Sides of the square matrices, powers of two, as long as a product takes little time."""

COPIES = 5
"""Number of copies measured, after one that is not. The fastest counts."""
COPY_SIDE = 4096
"""Side of the float32 matrix that is copied to each replica: 64 MiB."""


class Tpu(NamedTuple):
    """The devices under test: a TPU, or without a TPU the CPU of this machine."""

    strategy: tf.distribute.Strategy
    device: str
    """The first device, `/TPU:0` or `/CPU:0`."""
    devices: list[str]
    chips: int
    """0 for a CPU."""
    absence: str = ""
    """Why no TPU was found, else empty."""


class Rate(NamedTuple):
    """The speed of one replica for one size of matrices, while all replicas multiply."""

    side: int
    multiplications: int
    seconds: float
    wrong: list[int]
    """Number of wrong elements in the result of each replica."""

    @property
    def tflops(self) -> float:
        """TFLOP/s of one replica: 2 n^3 FLOPs per product of n x n matrices."""
        return 2 * self.side**3 * self.multiplications / self.seconds / 1e12


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print a report, write result.json; returns the exit code."""
    options = parse_arguments(arguments)
    emulated = "TPUCTL_SIM_TPU" in os.environ
    problems: list[str] = []
    tpu = find_tpu()
    accelerator = (options.accelerator or find_accelerator_type()) if tpu.chips else ""
    say(f"TensorFlow {tf.__version__}")
    report_devices(tpu, accelerator, emulated)
    if tpu.absence and not options.cpu:
        problems.append(tpu.absence)
    if not emulated:
        problems += missing_chips(tpu, accelerator)

    problems += place_on_first_device(tpu.device)
    problems += place_on_every_replica(tpu)
    rates = multiply(tpu.strategy, options.seconds)
    peak = peak_of_chip(accelerator)
    fastest, speed = report_rates(rates, tpu, peak)
    problems += wrong_products(rates)
    if not emulated:
        problems += unlikely_speed(speed, options.least_share)
    copies, wrong_copies = copy(tpu)
    problems += wrong_copies

    result = {
        "tpu": bool(tpu.chips),
        "emulated": emulated,
        "accelerator": accelerator,
        "devices": tpu.devices,
        "chips": tpu.chips,
        "replicas": tpu.strategy.num_replicas_in_sync,
        "matmul": {"side": fastest.side, "tflops_per_replica": fastest.tflops} | speed,
        "host_to_device_gb_per_second": copies,
        "problems": problems,
    }
    write_result(result)
    return conclude(problems, emulated, on_cpu=not tpu.chips)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Check that a Cloud TPU is found, right and fast.")
    parser.add_argument("--accelerator", help="type such as v3-8, if it cannot be detected")
    parser.add_argument(
        "--least-share",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="least share of the chip's peak speed (default 0.5)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="approximate time of a measurement (default 1)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not report a missing TPU as a problem")
    return parser.parse_args(arguments)


# find


def find_tpu() -> Tpu:
    """Return the TPU that TPU_NAME names; without a TPU return the CPU, and why no TPU was found."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the resolver raises the errors of its HTTP client
        return Tpu(tf.distribute.get_strategy(), "/CPU:0", device_names("CPU"), 0, why_no_tpu(error))
    chips = math.prod(int(length) for length in topology.mesh_shape[:3])  # the fourth axis: cores
    return Tpu(strategy, "/TPU:0", device_names("TPU"), chips)


def device_names(kind: str) -> list[str]:
    """Return the names of the devices, such as `/job:localhost/replica:0/task:0/device:TPU:0`, sorted."""
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    return sorted(names, key=lambda name: (name.rsplit(":", 2)[0], int(name.rsplit(":", 1)[1])))


def why_no_tpu(error: Exception) -> str:
    """Return a message with the cause and the fix, by TPU_NAME and the chips of this machine."""
    name = os.environ.get("TPU_NAME", "")
    chips = sorted(file for pattern in CHIP_FILES for file in glob.glob(pattern))
    reason = str(error).strip().partition("\n")[0][:300]
    if chips and not name:
        return f"TPU_NAME is not set, but this machine has chips ({chips[0]} ...): set TPU_NAME=local."
    if chips:
        return (
            f"TensorFlow could not start the TPU '{name}': {reason}. Another program may hold the chips "
            f"(sudo lsof -w {chips[0]}), or this TensorFlow is not built for TPUs: use the Python of the "
            "TPU VM's image."
        )
    if name:
        return f"TPU_NAME is '{name}', but no TPU was found: {reason}. This machine has no chips."
    return "No TPU was found: TPU_NAME is not set, and this machine has no chips (/dev/accel*, /dev/vfio/*)."


def find_accelerator_type() -> str:
    """Return the type such as `v3-8` from the environment or the metadata server of a TPU VM, else ''."""
    if os.environ.get("TPU_ACCELERATOR_TYPE"):
        return os.environ["TPU_ACCELERATOR_TYPE"]
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/attributes/accelerator-type",
        headers={"Metadata-Flavor": "Google"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310  always http
            return str(response.read().decode().strip())
    except OSError:  # not a TPU VM
        return ""


def report_devices(tpu: Tpu, accelerator: str, emulated: bool) -> None:
    """Print the devices, and whether the figures are those of a TPU."""
    if tpu.absence:
        say(f"{tpu.absence}\nThe checks run on the CPU: THE FIGURES ARE THE CPU'S.")
    elif emulated:
        say("The TPU is emulated by tpuctl's simulator: THE FIGURES ARE THE CPU'S.")
    if tpu.chips:
        say(f"accelerator  {accelerator or 'unknown; give --accelerator to compare with its peak'}")
        say(f"chips        {tpu.chips}")
    say(f"replicas     {tpu.strategy.num_replicas_in_sync}")
    for name in tpu.devices:
        say(f"device       {name}")


def missing_chips(tpu: Tpu, accelerator: str) -> list[str]:
    """Compare the number of chips with that of the accelerator type; returns the problems."""
    generation, _, count = accelerator.partition("-")
    if not tpu.chips or generation not in CHIPS or not count.isdigit():
        return []
    expected = max(1, int(count) // CHIPS[generation].cores)
    return [] if tpu.chips == expected else [f"{accelerator} has {expected} chips; found {tpu.chips}."]


# place


def place_on_first_device(device: str) -> list[str]:
    """Multiply two small matrices on `device`; returns the problems."""
    with tf.device(device):
        product = tf.matmul(tf.constant(LEFT), tf.constant(RIGHT))
    say(f"a product on {device}: {product.numpy().tolist()}, computed on {product.device}")
    problems = []
    if device.strip("/") not in product.device:
        problems.append(f"The product for {device} was computed on {product.device}.")
    if product.numpy().tolist() != PRODUCT:
        problems.append(f"Wrong value on {device}: {product.numpy().tolist()} instead of {PRODUCT}.")
    return problems


def place_on_every_replica(tpu: Tpu) -> list[str]:
    """Multiply on all replicas at once, and scale by the replica's number + 1; returns the problems."""

    @tf.function
    def products(left: tf.Tensor, right: tf.Tensor) -> Any:
        def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.matmul(left, right) * (tf.cast(number, tf.float32) + 1.0)

        return tpu.strategy.run(product, args=(left, right))

    per_replica = products(tf.constant(LEFT), tf.constant(RIGHT))
    say(f"the product on every replica, times its number + 1:\n{per_replica}")
    values = [value.numpy().tolist() for value in tpu.strategy.experimental_local_results(per_replica)]
    return wrong_values(values, len(tpu.devices) if tpu.chips else 1)


def wrong_values(values: list[list[list[float]]], expected: int) -> list[str]:
    """Compare the product of each replica with the correct one; returns the problems."""
    problems = []
    if len(values) != expected:
        problems.append(f"Expected the results of {expected} replicas, got {len(values)}.")
    for number, value in enumerate(values):
        correct = [[element * (number + 1) for element in row] for row in PRODUCT]
        if value != correct:
            problems.append(f"Wrong value on replica {number}: {value} instead of {correct}.")
    return problems


# multiply


def multiply(strategy: tf.distribute.Strategy, seconds: float) -> list[Rate]:
    """Measure each size for about `seconds`, up to the largest one that takes no longer."""
    rates: list[Rate] = []
    for side in SIZES:
        rates.append(multiply_one_size(strategy, side, seconds))
        pair = 2 * rates[-1].seconds / rates[-1].multiplications
        if 8 * pair > seconds:  # double the side is eight times the work
            break
    return rates


def multiply_one_size(strategy: tf.distribute.Strategy, side: int, seconds: float) -> Rate:
    """Multiply matrices of `side` x `side` on all replicas, for at least half of `seconds`.

    X is multiplied by A and by B in turn, with A B = 1, so it must be unchanged at the end, to the last bit.
    A and B are Hadamard matrices times powers of two whose product is 1 / side, so all elements and sums are
    exact in bfloat16 and float32.
    """
    matrices = make_matrices(strategy, side)

    @tf.function
    def run(pairs: tf.Tensor) -> Any:
        return strategy.run(multiply_in_turn, args=(*matrices, pairs))

    def timed(pairs: int) -> tuple[float, list[int]]:
        count = tf.constant(pairs)
        started = time.perf_counter()
        wrong = [
            int(value) for value in strategy.experimental_local_results(run(count))
        ]  # waits for the device
        return time.perf_counter() - started, wrong

    timed(1)  # compiles
    pairs = 1
    while True:
        elapsed, wrong = timed(pairs)
        if elapsed >= seconds / 2 or any(wrong):
            return Rate(side, 2 * pairs, elapsed, wrong)
        pairs *= min(100, max(2, round(seconds / elapsed)))


def make_matrices(strategy: tf.distribute.Strategy, side: int) -> Any:
    """Return X, a permutation, and A and B with A B = 1, in bfloat16 on every replica."""
    doublings = side.bit_length() - 1

    @tf.function
    def run(ones: tf.Tensor) -> Any:
        return strategy.run(make, args=(ones,))

    def make(ones: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        hadamard = ones  # an argument, so that the compiler cannot fold all this into constants
        for _ in range(doublings):
            above, below = tf.concat([hadamard, hadamard], 1), tf.concat([hadamard, -hadamard], 1)
            hadamard = tf.concat([above, below], 0)
        permutation = tf.roll(tf.eye(side), shift=side // 3, axis=0) * ones
        half = doublings // 2
        scaled = (permutation, hadamard * 2.0**-half, hadamard * 2.0 ** -(doublings - half))
        return tuple(tf.cast(matrix, tf.bfloat16) for matrix in scaled)

    return run(tf.ones([1, 1]))


def multiply_in_turn(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor, pairs: tf.Tensor) -> tf.Tensor:
    """Multiply x by a and b, `pairs` times; returns the number of elements that changed."""
    result = x
    for _ in tf.range(pairs):
        result = tf.matmul(tf.matmul(result, a), b)
    return tf.reduce_sum(tf.cast(result != x, tf.int32))


def peak_of_chip(accelerator: str) -> float | None:
    """Return the peak TFLOP/s in bfloat16 of a chip of this type, None for an unknown type."""
    chip = CHIPS.get(accelerator.partition("-")[0])
    return chip.tflops if chip else None


def report_rates(rates: list[Rate], tpu: Tpu, peak: float | None) -> tuple[Rate, dict[str, float]]:
    """Print the speed of every size; returns the fastest, and the figures per chip of a TPU."""
    say("bfloat16 products of n x n matrices on all replicas at once:")
    say("       n  products    seconds  TFLOP/s per replica  in all")
    replicas = tpu.strategy.num_replicas_in_sync
    for rate in rates:
        say(
            f"  {rate.side:6d}  {rate.multiplications:8d}  {rate.seconds:9.3f}  {rate.tflops:19.3f}"
            f"  {rate.tflops * replicas:6.3f}"
        )
    fastest = max(rates, key=lambda rate: rate.tflops)
    if not tpu.chips:
        return fastest, {}
    per_chip = fastest.tflops * replicas / tpu.chips
    if peak is None:
        say(f"{per_chip:.4g} TFLOP/s per chip; the peak of this accelerator type is unknown")
        return fastest, {"tflops_per_chip": per_chip}
    say(f"{per_chip:.4g} TFLOP/s per chip, {per_chip / peak:.1%} of its peak of {peak}")
    share = per_chip / peak
    return fastest, {"tflops_per_chip": per_chip, "peak_tflops_per_chip": peak, "share_of_peak": share}


def wrong_products(rates: list[Rate]) -> list[str]:
    """Return a problem for each replica with wrong products."""
    return [
        f"Wrong products of {rate.side} x {rate.side} on replica {number}: {wrong} elements."
        for rate in rates
        for number, wrong in enumerate(rate.wrong)
        if wrong
    ]


def unlikely_speed(speed: dict[str, float], least_share: float) -> list[str]:
    """Return a problem if the share of the chip's peak is too low or impossibly high."""
    share = speed.get("share_of_peak")
    if share is None:
        return []
    if share < least_share:
        return [
            f"The speed is {share:.1%} of the chip's peak; {least_share:.0%} is the least. "
            "Is another program using the chips?"
        ]
    if share > 1.05:
        return [f"The speed is {share:.0%} of the chip's peak: is the accelerator type right?"]
    return []


# copy


def copy(tpu: Tpu) -> tuple[dict[str, float], list[str]]:
    """Copy matrices from the host to the first device and to all; returns GB/s and the problems."""
    replicas = tpu.strategy.num_replicas_in_sync
    size = COPY_SIDE * COPY_SIDE * 4 / 1e9

    def filled(value: float) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.fill([COPY_SIDE, COPY_SIDE], value)

    fresh = iter([filled(1.0) for _ in range(COPIES + 1)])  # TensorFlow caches a copy
    batches = tpu.strategy.experimental_distribute_values_from_function(
        lambda context: filled(float(context.replica_id_in_sync_group + 1))
    )

    def to_first() -> list[list[float]]:
        with tf.device(tpu.device):
            return [extremes(next(fresh)).numpy().tolist()]

    @tf.function
    def run(batches: Any) -> Any:
        return tpu.strategy.run(extremes, args=(batches,))

    def to_all() -> list[list[float]]:  # as for the batch of a training step
        return [value.numpy().tolist() for value in tpu.strategy.experimental_local_results(run(batches))]

    first, first_values = fastest_of(to_first)
    every, every_values = fastest_of(to_all)
    speeds = {"one": size / first, "all": size * replicas / every}
    say(f"host to {tpu.device}: {speeds['one']:.2f} GB/s; to all replicas at once: {speeds['all']:.2f} GB/s")
    expected = [[float(number + 1)] * 2 for number in range(replicas)]
    problems = [] if first_values == [[1.0, 1.0]] else [f"A copy on {tpu.device} differs from its source."]
    if every_values != expected:
        problems.append(f"Copies on the replicas differ from their sources: {every_values}.")
    return speeds, problems


def extremes(matrix: tf.Tensor) -> tf.Tensor:
    """Return the smallest and the largest element; that takes the complete copy."""
    return tf.stack([tf.reduce_min(matrix), tf.reduce_max(matrix)])


def fastest_of(work: Callable[[], list[list[float]]], times: int = COPIES) -> tuple[float, list[list[float]]]:
    """Run `work` `times` times after a first run; return the least time in seconds and the last result."""
    work()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


# conclude


def write_result(result: dict[str, Any]) -> None:
    """Write result.json to TPUCTL_MODEL_DIR, if it is set."""
    folder = os.environ.get("TPUCTL_MODEL_DIR")
    if folder:
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(os.path.join(folder, "result.json"), "w") as file:
            file.write(json.dumps(result, indent=1))


def conclude(problems: list[str], emulated: bool, on_cpu: bool) -> int:
    """Print the problems, or that there are none; returns the exit code."""
    note = " The figures are the CPU's." if emulated or on_cpu else ""
    if not problems:
        say(f"No problems found.{note}")
        return 0
    say(f"Problems found: {len(problems)}.{note}")
    for problem in problems:
        say(f"  {problem}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
