"""Converts a source to a dataset: records become Examples, Examples become TFRecord shards with a manifest.

No network and no TensorFlow. The subpackages:

sources/    a reader for each format: CSV, JSON Lines, Parquet, NumPy, IDX, TFRecord, TFDS, class folders
files/      the files of a source: listed, split into lines and rows, unpacked, cached
tables/     types of columns (CSV cells, JSON and Parquet cells), and rows as records
arrays/     arrays (NumPy, IDX) as records: which one is the input, which one the label
images/     PNG and JPEG: headers, resizing, contact sheets
tokens/     texts as token ids: vocabulary, tokenizer
schema/     features and classes
order/      in which split and at which place each record is written
tfrecord/   tf.train.Example and TFRecord on the wire
output/     shards, manifest, TFDS metadata
public/     public datasets for `tpuctl data fetch`
"""
