import tensorflow as tf
from tpu import strategy


@tf.function
def step(texts, x):
    return strategy.run(lambda texts, x: x + 1.0, args=(texts, x))  # STRING_INPUT


step(tf.ragged.constant([["a"], ["b", "c"]]), tf.ones(2))
# raises InvalidArgumentError: Unsupported data type for TPU: string, caused by output
