"""The only clients: Cloud TPU API, Cloud Storage, SSH; and where they connect to."""
