"""Public datasets for `tpuctl data fetch`."""
