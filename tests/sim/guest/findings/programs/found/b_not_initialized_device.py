import tensorflow as tf

with tf.device("/TPU:0"):  # NOT_INITIALIZED
    tf.matmul([[1.0]], [[2.0]])
