"""Run every benchmark, one after the other."""

from benchmarks import (
    command_line,
    connections,
    copy,
    emulated_tpu,
    following,
    growth,
    photographs,
    provisioning,
    pull,
    simulator,
    watching,
)
from benchmarks.datasets import __main__ as datasets
from benchmarks.gcs import __main__ as gcs
from benchmarks.input_pipeline import __main__ as input_pipeline

for benchmark in (
    command_line, provisioning, connections, following, watching, growth, copy, pull, gcs, simulator,
    emulated_tpu, input_pipeline, datasets, photographs,
):  # fmt: skip
    benchmark.main()
