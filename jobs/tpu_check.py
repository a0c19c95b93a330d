# /// script
# requires-python = ">=3.10"
# dependencies = ["tensorflow"]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# framework = "tensorflow"
# ///
"""Check a Cloud TPU, the first thing to run on a new one: is it there, is it right, is it fast?

    find      the TPU and its devices
    place     a small product of matrices on TPU:0, and on every replica; each value is checked
    multiply  large bfloat16 matrices, many times inside one function; TFLOP/s against the chip's peak
    copy      from the host to the devices, in GB/s

Ends with 0 if all is well and with 1 if not; what is wrong is said in words. Without a TPU the same is done
on the CPU, and that nothing was found is what is wrong (`--cpu`: it is not).

Environment (places are folders or gs:// addresses):

    TPU_NAME                `local` on a TPU VM, the node's name on a slice of several hosts
    TPU_ACCELERATOR_TYPE    such as `v3-8`; without it (or --accelerator) the metadata server is asked
    TPUCTL_MODEL_DIR        result.json, all figures
    TPUCTL_SIM_TPU          set by tpuctl's simulator, whose TPU is the CPU: its speed is not judged
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
"""How a TPU VM shows its chips: up to v4, and from v5e on."""

LEFT, RIGHT = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
PRODUCT = [[22.0, 28.0], [49.0, 64.0]]

SIZES = (512, 1024, 2048, 4096, 8192)
"""Sides of the square matrices, powers of two. The next is tried while its product stays short."""

COPIES = 5
"""Measured, of which the fastest counts; one before them does not."""
COPY_SIDE = 4096
"""Side of the float32 matrix that is copied to each replica: 64 MiB."""


class Tpu(NamedTuple):
    """What the products run on: a TPU, or without one this machine's CPU."""

    strategy: tf.distribute.Strategy
    device: str
    """The first device, `/TPU:0` or `/CPU:0`."""
    devices: list[str]
    chips: int
    """0 for a CPU."""
    absence: str = ""
    """Why there is no TPU."""


class Rate(NamedTuple):
    """The speed of one size of matrices, of each replica while all of them multiply."""

    side: int
    multiplications: int
    seconds: float
    wrong: list[int]
    """How many elements of its result were wrong, for each replica."""

    @property
    def tflops(self) -> float:
        """TFLOP/s of one replica: 2 n^3 for each product of n x n matrices."""
        return 2 * self.side**3 * self.multiplications / self.seconds / 1e12


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print the report, leave result.json; returns the exit code."""
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
    leave_result(result)
    return conclude(problems, emulated, on_cpu=not tpu.chips)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Check a Cloud TPU: is it there, right and fast?")
    parser.add_argument("--accelerator", help="type, such as v3-8, where it cannot be found out")
    parser.add_argument(
        "--least-share",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="share of the chip's peak below which the speed is wrong (default 0.5)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long a measurement takes, about (default 1)"
    )
    parser.add_argument("--cpu", action="store_true", help="no TPU is expected: without one, end with 0")
    return parser.parse_args(arguments)


# find


def find_tpu() -> Tpu:
    """Return the TPU that TPU_NAME names; without one the CPU, and why."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the resolver passes on whatever its HTTP client raises
        return Tpu(tf.distribute.get_strategy(), "/CPU:0", names_of("CPU"), 0, why_no_tpu(error))
    chips = math.prod(int(length) for length in topology.mesh_shape[:3])  # the fourth: cores of a chip
    return Tpu(strategy, "/TPU:0", names_of("TPU"), chips)


def names_of(kind: str) -> list[str]:
    """Return the names of the devices, such as `/job:localhost/replica:0/task:0/device:TPU:0`, sorted."""
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    return sorted(names, key=lambda name: (name.rsplit(":", 2)[0], int(name.rsplit(":", 1)[1])))


def why_no_tpu(error: Exception) -> str:
    """Say what was missing and what to do: is a TPU named, are there chips?"""
    named = os.environ.get("TPU_NAME", "")
    chips = sorted(file for pattern in CHIP_FILES for file in glob.glob(pattern))
    reason = str(error).strip().partition("\n")[0][:300]
    if chips and not named:
        return f"No TPU is named, but this machine has chips ({chips[0]} ...): set TPU_NAME=local."
    if chips:
        return (
            f"TensorFlow could not start the TPU '{named}': {reason}. Another program may hold the chips "
            f"(sudo lsof -w {chips[0]}), or this TensorFlow is not built for TPUs: take the Python of the "
            "TPU VM's image."
        )
    if named:
        return f"TPU_NAME is '{named}', but no TPU was found: {reason}. This machine has no chips of its own."
    return "No TPU was found: TPU_NAME is not set, and this machine has no chips (/dev/accel*, /dev/vfio/*)."


def find_accelerator_type() -> str:
    """Return the type such as `v3-8`, from the environment or the metadata server of a TPU VM; or ''."""
    if os.environ.get("TPU_ACCELERATOR_TYPE"):
        return os.environ["TPU_ACCELERATOR_TYPE"]
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/attributes/accelerator-type",
        headers={"Metadata-Flavor": "Google"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read().decode().strip())
    except OSError:  # not a TPU VM, or the program runs beside the TPU
        return ""


def report_devices(tpu: Tpu, accelerator: str, emulated: bool) -> None:
    """Print what was found."""
    if tpu.absence:
        say(f"{tpu.absence}\nThe same is done on the CPU; THE FIGURES ARE THE CPU'S.")
    elif emulated:
        say("The TPU is emulated by tpuctl's simulator: THE FIGURES ARE THE CPU'S.")
    if tpu.chips:
        say(f"accelerator  {accelerator or 'unknown; give --accelerator to compare with its peak'}")
        say(f"chips        {tpu.chips}")
    say(f"replicas     {tpu.strategy.num_replicas_in_sync}")
    for name in tpu.devices:
        say(f"device       {name}")


def missing_chips(tpu: Tpu, accelerator: str) -> list[str]:
    """Compare the chips with those that the type promises."""
    generation, _, count = accelerator.partition("-")
    if not tpu.chips or generation not in CHIPS or not count.isdigit():
        return []
    promised = max(1, int(count) // CHIPS[generation].cores)
    return [] if tpu.chips == promised else [f"{accelerator} has {promised} chips; {tpu.chips} were found."]


# place


def place_on_first_device(device: str) -> list[str]:
    """Multiply two small matrices on `device`; returns what was wrong."""
    with tf.device(device):
        product = tf.matmul(tf.constant(LEFT), tf.constant(RIGHT))
    say(f"a product on {device}: {product.numpy().tolist()}, computed on {product.device}")
    problems = []
    if device.strip("/") not in product.device:
        problems.append(f"The product meant for {device} was computed on {product.device}.")
    if product.numpy().tolist() != PRODUCT:
        problems.append(f"Wrong value on {device}: {product.numpy().tolist()} in place of {PRODUCT}.")
    return problems


def place_on_every_replica(tpu: Tpu) -> list[str]:
    """Multiply on all replicas at once, each by its own number + 1; returns what was wrong."""

    @tf.function
    def products(left: tf.Tensor, right: tf.Tensor) -> Any:
        def one(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.matmul(left, right) * (tf.cast(number, tf.float32) + 1.0)

        return tpu.strategy.run(one, args=(left, right))

    per_replica = products(tf.constant(LEFT), tf.constant(RIGHT))
    say(f"the same on every replica, times its number + 1:\n{per_replica}")
    values = [value.numpy().tolist() for value in tpu.strategy.experimental_local_results(per_replica)]
    return wrong_values(values, len(tpu.devices) if tpu.chips else 1)


def wrong_values(values: list[list[list[float]]], expected: int) -> list[str]:
    """Compare the replicas' products, one a device, with what each must be."""
    problems = []
    if len(values) != expected:
        problems.append(f"{len(values)} replicas answered; there are {expected} devices.")
    for number, value in enumerate(values):
        right = [[element * (number + 1) for element in row] for row in PRODUCT]
        if value != right:
            problems.append(f"Wrong value on replica {number}: {value} in place of {right}.")
    return problems


# multiply


def multiply(strategy: tf.distribute.Strategy, seconds: float) -> list[Rate]:
    """Measure one size after the other, for about `seconds` each, until a larger one would take too long."""
    rates: list[Rate] = []
    for side in SIZES:
        rates.append(multiply_one_size(strategy, side, seconds))
        pair = 2 * rates[-1].seconds / rates[-1].multiplications
        if 8 * pair > seconds:  # twice the side is eight times the work
            break
    return rates


def multiply_one_size(strategy: tf.distribute.Strategy, side: int, seconds: float) -> Rate:
    """Multiply matrices of `side` x `side` on all replicas, for at least half of `seconds`.

    X is multiplied by A and by B in turn, with A B = 1: it must be unchanged at the end, to the last bit.
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
    """Return X, a permutation, and A and B with A B = 1, all bfloat16 and there where they are needed."""
    log = side.bit_length() - 1

    @tf.function
    def run(one: tf.Tensor) -> Any:
        return strategy.run(make, args=(one,))

    def make(one: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        hadamard = one  # an argument, so that the compiler does not compute all this itself
        for _ in range(log):
            above, below = tf.concat([hadamard, hadamard], 1), tf.concat([hadamard, -hadamard], 1)
            hadamard = tf.concat([above, below], 0)
        permutation = tf.roll(tf.eye(side), shift=side // 3, axis=0) * one
        scaled = (permutation, hadamard * 2.0 ** -(log // 2), hadamard * 2.0 ** -(log - log // 2))
        return tuple(tf.cast(matrix, tf.bfloat16) for matrix in scaled)

    return run(tf.ones([1, 1]))


def multiply_in_turn(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor, pairs: tf.Tensor) -> tf.Tensor:
    """Multiply x by a and b, `pairs` times; returns how many elements are no longer what they were."""
    result = x
    for _ in tf.range(pairs):
        result = tf.matmul(tf.matmul(result, a), b)
    return tf.reduce_sum(tf.cast(result != x, tf.int32))


def peak_of_chip(accelerator: str) -> float | None:
    """Return the bfloat16 TFLOP/s that a chip of this type can reach, if the type is known."""
    chip = CHIPS.get(accelerator.partition("-")[0])
    return chip.tflops if chip else None


def report_rates(rates: list[Rate], tpu: Tpu, peak: float | None) -> tuple[Rate, dict[str, float]]:
    """Print every size's speed; returns the fastest, and of a TPU a chip's speed and share of its peak."""
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
        say(f"{per_chip:.4g} TFLOP/s per chip; the peak of its type is not known")
        return fastest, {"tflops_per_chip": per_chip}
    say(f"{per_chip:.4g} TFLOP/s per chip, {per_chip / peak:.1%} of its peak of {peak}")
    share = per_chip / peak
    return fastest, {"tflops_per_chip": per_chip, "peak_tflops_per_chip": peak, "share_of_peak": share}


def wrong_products(rates: list[Rate]) -> list[str]:
    """Name the replicas that multiplied wrongly."""
    return [
        f"Wrong products of {rate.side} x {rate.side} on replica {number}: {wrong} elements."
        for rate in rates
        for number, wrong in enumerate(rate.wrong)
        if wrong
    ]


def unlikely_speed(speed: dict[str, float], least_share: float) -> list[str]:
    """Judge the share of the chip's peak."""
    share = speed.get("share_of_peak")
    if share is None:
        return []
    if share < least_share:
        return [
            f"Far below peak: {share:.1%} of it, where {least_share:.0%} is the least. "
            "Is another program using the chips?"
        ]
    if share > 1.05:
        return [f"{share:.0%} of the chip's peak cannot be: is it another type than was said?"]
    return []


# copy


def copy(tpu: Tpu) -> tuple[dict[str, float], list[str]]:
    """Copy matrices from the host, to the first device and to all; returns GB/s and what was wrong."""
    replicas = tpu.strategy.num_replicas_in_sync
    size = COPY_SIDE * COPY_SIDE * 4 / 1e9

    def filled(value: float) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.fill([COPY_SIDE, COPY_SIDE], value)

    fresh = iter([filled(1.0) for _ in range(COPIES + 1)])  # TensorFlow keeps what it has copied once
    batches = tpu.strategy.experimental_distribute_values_from_function(
        lambda context: filled(float(context.replica_id_in_sync_group + 1))
    )

    def to_first() -> list[list[float]]:
        with tf.device(tpu.device):
            return [extremes(next(fresh)).numpy().tolist()]

    @tf.function
    def run(batches: Any) -> Any:
        return tpu.strategy.run(extremes, args=(batches,))

    def to_all() -> list[list[float]]:  # as a training step gets its batch
        return [value.numpy().tolist() for value in tpu.strategy.experimental_local_results(run(batches))]

    first, first_values = fastest_of(to_first)
    every, every_values = fastest_of(to_all)
    speeds = {"one": size / first, "all": size * replicas / every}
    say(f"host to {tpu.device}: {speeds['one']:.2f} GB/s; to all replicas at once: {speeds['all']:.2f} GB/s")
    expected = [[float(number + 1)] * 2 for number in range(replicas)]
    problems = (
        [] if first_values == [[1.0, 1.0]] else [f"What was copied to {tpu.device} is not what arrived."]
    )
    if every_values != expected:
        problems.append(f"What was copied to the replicas is not what arrived: {every_values}.")
    return speeds, problems


def extremes(matrix: tf.Tensor) -> tf.Tensor:
    """Return the least and the greatest element: both are asked for only when all has arrived."""
    return tf.stack([tf.reduce_min(matrix), tf.reduce_max(matrix)])


def fastest_of(work: Callable[[], list[list[float]]], times: int = COPIES) -> tuple[float, list[list[float]]]:
    """Return the least time in seconds that `work` took, not counting the first, and its last answer."""
    work()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), answer


# conclude


def leave_result(result: dict[str, Any]) -> None:
    """Write the figures where the environment says."""
    place = os.environ.get("TPUCTL_MODEL_DIR")
    if place:
        tf.io.gfile.makedirs(place)
        with tf.io.gfile.GFile(os.path.join(place, "result.json"), "w") as file:
            file.write(json.dumps(result, indent=1))


def conclude(problems: list[str], emulated: bool, on_cpu: bool) -> int:
    """Print what is wrong, or that nothing is; returns the exit code."""
    whose = " The figures are the CPU's." if emulated or on_cpu else ""
    if not problems:
        say(f"All is well.{whose}")
        return 0
    say(f"{len(problems)} wrong:{whose}")
    for problem in problems:
        say(f"  {problem}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
