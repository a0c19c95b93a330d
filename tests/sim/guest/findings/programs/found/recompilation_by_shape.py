import tensorflow as tf
from tpu import strategy


@tf.function
def replica(x):
    return x + 1.0


for length in (1, 2, 3):
    strategy.run(replica, args=(tf.ones(length),))  # RECOMPILATION
