"""The simulator: servers that speak the Cloud TPU API, Cloud Storage, the metadata server and SSH."""
