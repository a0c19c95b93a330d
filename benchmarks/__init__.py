"""What is measured, side by side with a peer in the same run; `python -m benchmarks` runs all of it."""
