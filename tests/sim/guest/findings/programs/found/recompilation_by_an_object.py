import tensorflow as tf
from tpu import strategy


@tf.function
def step(x, activation):
    return strategy.run(lambda x: activation(x), args=(x,))  # RECOMPILATION


for scale in (1.0, 2.0, 3.0):
    step(tf.ones(2), lambda x, scale=scale: x * scale)
