"""Run every benchmark, one after the other."""

from benchmarks import command_line, simulator

for benchmark in (command_line, simulator):
    benchmark.main()
