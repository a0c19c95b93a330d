import tensorflow as tf
from tpu import strategy


@tf.function
def step(x):
    return strategy.run(lambda x: tf.strings.length(tf.strings.as_string(x)), args=(x,))  # UNSUPPORTED_OP


step(tf.ones(2))
# raises InvalidArgumentError: Compilation failure: Detected unsupported operations when trying to compile
