import tensorflow as tf
from tpu import strategy

files = tf.data.Dataset.list_files(__file__, shuffle=False)
lines = files.interleave(tf.data.TextLineDataset).map(tf.strings.length).batch(4)
strategy.experimental_distribute_dataset(lines)  # LOCAL_PATH
# raises UnimplementedError: File system scheme '[local]' not implemented (file:
