import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
with tf.device("/CPU:0"):
    before = tf.ones(2)
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
with tf.device("/TPU:0"):
    tf.matmul([[1.0]], [[2.0]])
tf.distribute.TPUStrategy(resolver)
