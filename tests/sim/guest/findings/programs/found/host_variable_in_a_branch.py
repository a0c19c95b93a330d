import tensorflow as tf
from tpu import strategy

scale = tf.Variable(2.0)


def replica(x):
    if tf.reduce_sum(x) > 1.0:
        x = x * scale  # HOST_VARIABLE
    return x


@tf.function
def step(x):
    return strategy.run(replica, args=(x,))


step(tf.ones(2))
