import tensorflow as tf
from tpu import strategy

assert strategy.num_replicas_in_sync == 2
with tf.device("/TPU:8"):  # NO_SUCH_CORE
    tf.matmul([[1.0]], [[2.0]])
