import tensorflow as tf
from tpu import strategy


@tf.function
def step(batch):
    return strategy.run(tf.reduce_sum, args=(batch,))


batches = tf.data.Dataset.range(8).map(lambda n: tf.ones([n])).padded_batch(4)


@tf.function
def epoch(iterator):
    for _ in tf.range(2):
        strategy.run(tf.reduce_sum, args=(next(iterator),))  # DYNAMIC_SHAPE


epoch(iter(strategy.experimental_distribute_dataset(batches)))
