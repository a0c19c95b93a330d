import tensorflow as tf
from tpu import strategy


@tf.function
def partial_step(batch):
    return strategy.run(lambda batch: batch + 1, args=(batch,))


for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.range(10).batch(4)):  # PARTIAL_BATCH
    partial_step(batch)
