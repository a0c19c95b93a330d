import tensorflow as tf
from tpu import strategy


@tf.function
def step(text, x):
    return strategy.run(lambda text, x: x + 1.0, args=(text, x))  # STRING_INPUT


step(tf.constant(["a", "b"]), tf.ones(2))
# raises InvalidArgumentError: Unsupported data type for TPU: string, caused by output text:0
