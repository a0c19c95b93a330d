import tensorflow as tf
from tpu import strategy


@tf.function
def step(batch):
    return strategy.run(lambda batch: batch["x"] + 1.0, args=(batch,))  # STRING_INPUT


batches = tf.data.Dataset.from_tensor_slices({"x": tf.ones(4), "name": ["a", "b", "c", "d"]}).batch(4)
for batch in strategy.experimental_distribute_dataset(batches):
    step(batch)
# raises InvalidArgumentError: Unsupported data type for TPU: string, caused by output
