import tensorflow as tf
from tpu import strategy

batches = tf.data.Dataset.range(10).batch(5)
strategy.experimental_distribute_dataset(batches)  # UNEVEN_BATCH
