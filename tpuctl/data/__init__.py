"""Datasets as TFRecord: readers -> examples -> shards -> manifest; no network and no TensorFlow."""
