"""Public datasets that `tpuctl data fetch` knows."""
