"""The Python API: `tpuctl.Client`, its handles and its records. Public is what `tpuctl` itself exports."""
