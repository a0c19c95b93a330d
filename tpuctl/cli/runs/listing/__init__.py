"""What a line of `tpuctl runs` shows."""
