import tensorflow as tf
from tpu import strategy

steps = tf.Variable(0)


def replica(x):
    steps.assign_add(1)  # HOST_VARIABLE
    return x + 1.0


@tf.function
def step(x):
    return strategy.run(replica, args=(x,))


step(tf.ones(2))
