import tensorflow as tf
from tpu import strategy


@tf.function
def replica():
    tf.print("here")  # UNSUPPORTED_OP


strategy.run(replica)
# raises InvalidArgumentError: Compilation failure: Detected unsupported operations when trying to compile
