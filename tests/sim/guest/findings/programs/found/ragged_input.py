import tensorflow as tf
from tpu import strategy

batches = tf.data.Dataset.range(4).map(tf.range).ragged_batch(2)
strategy.experimental_distribute_dataset(batches)  # RAGGED_INPUT
# raises ValueError: Found tensor  with spec
