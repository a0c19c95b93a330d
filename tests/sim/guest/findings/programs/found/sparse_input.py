import tensorflow as tf
from tpu import strategy

batches = tf.data.Dataset.from_tensor_slices(tf.sparse.eye(4)).batch(2)
strategy.distribute_datasets_from_function(lambda context: batches)  # SPARSE_INPUT
# raises ValueError: Found tensor  with spec
