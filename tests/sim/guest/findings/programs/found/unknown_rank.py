import tensorflow as tf
from tpu import strategy


@tf.function(input_signature=[tf.TensorSpec(None)])
def step(x):
    return strategy.run(lambda x: x + 1.0, args=(x,))  # UNKNOWN_RANK


step(tf.ones(2))
# raises ValueError: input tensor
