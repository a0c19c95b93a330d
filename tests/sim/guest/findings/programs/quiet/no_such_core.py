import tensorflow as tf
from tpu import strategy

assert strategy.num_replicas_in_sync == 2, "of the eight cores that v3-8 has"
for core in range(8):
    with tf.device(f"/TPU:{core}"):
        tf.matmul([[1.0]], [[2.0]])
