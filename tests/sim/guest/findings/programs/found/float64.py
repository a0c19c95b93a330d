import tensorflow as tf
from tpu import strategy


def replica(x):
    return tf.cast(x, tf.float64) * 2.0  # FLOAT64


@tf.function
def step(x):
    return strategy.run(replica, args=(x,))


step(tf.ones(2))
