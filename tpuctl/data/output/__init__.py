"""The files of a dataset: TFRecord shards, manifest, TFDS metadata, and the check of a shard."""
