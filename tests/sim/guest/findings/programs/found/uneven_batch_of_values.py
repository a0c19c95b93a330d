import tensorflow as tf
from tpu import strategy


@tf.function
def uneven_step(x):
    return strategy.run(lambda x: x + 1.0, args=(x,))  # UNEVEN_BATCH


uneven_step(strategy.experimental_distribute_values_from_function(
    lambda context: tf.ones(1 + context.replica_id_in_sync_group)
))  # fmt: skip
