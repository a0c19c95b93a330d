"""What a dataset consists of: shards, metadata files, manifest."""
