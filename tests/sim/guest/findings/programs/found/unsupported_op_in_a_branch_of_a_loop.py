import tensorflow as tf
from tpu import strategy


@tf.function
def said(x):
    tf.print("large")  # UNSUPPORTED_OP
    return x


def replica(x):
    for _ in tf.range(3):
        if tf.reduce_sum(x) > 9.0:
            x = said(x)
    return x


@tf.function
def step(x):
    return strategy.run(replica, args=(x,))


step(tf.ones(2))
# raises InvalidArgumentError: Compilation failure: Detected unsupported operations when trying to compile
