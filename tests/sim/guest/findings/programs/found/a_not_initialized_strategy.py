import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.distribute.TPUStrategy(resolver)  # NOT_INITIALIZED
# raises RuntimeError: The TPU system is not initialized
