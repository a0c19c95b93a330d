"""tpuctl: train on Google Cloud TPUs from a laptop, or rehearse it on a simulator."""

__version__ = "0.1.0"
