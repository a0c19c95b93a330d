"""The clients of the Cloud TPU API, Cloud Storage and SSH, and the endpoints that they connect to."""
