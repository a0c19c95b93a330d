"""Public datasets for `tpuctl data fetch`: where each one is published, and how it is unpacked."""
