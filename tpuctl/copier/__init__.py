"""Sends and receives files at both ends of `tpuctl cp`: standard library only, Python 3.8+."""
