"""Run every benchmark, one after the other."""

from benchmarks import command_line, datasets, emulated_tpu, gcs, input_pipeline, simulator

for benchmark in (command_line, gcs, simulator, emulated_tpu, input_pipeline, datasets):
    benchmark.main()
