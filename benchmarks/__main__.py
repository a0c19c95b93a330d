"""Run every benchmark, one after the other."""

from benchmarks import command_line, gcs, simulator

for benchmark in (command_line, gcs, simulator):
    benchmark.main()
