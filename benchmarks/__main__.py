"""Run every benchmark, one after the other."""

from benchmarks import command_line

for benchmark in (command_line,):
    benchmark.main()
