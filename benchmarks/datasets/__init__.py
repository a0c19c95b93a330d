"""`tpuctl data upload` and its peers."""
