"""The simulator's Cloud Storage: a disk-backed server that keeps its promises through a kill -9."""
