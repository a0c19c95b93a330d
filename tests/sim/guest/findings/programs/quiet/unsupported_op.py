import tensorflow as tf
from tpu import strategy


def replica(x):
    tf.debugging.assert_less(x, 9.0, message="too large")
    tf.debugging.Assert(tf.reduce_all(x < 9.0), [tf.strings.as_string(x)])
    table = tf.TensorArray(tf.float32, size=3)
    for i in tf.range(3):
        table = table.write(i, tf.gather(tf.sort(x), 0))
    return tf.nn.dropout(table.stack(), 0.5) + tf.random.uniform([3])


@tf.function
def step(iterator):
    strategy.run(replica, args=(next(iterator),))
    tf.print("between steps, on the host")


words = tf.data.Dataset.from_tensor_slices(["a", "bb", "ccc", "dddd"])
numbers = words.map(lambda word: tf.cast(tf.strings.length(word), tf.float32)).batch(2)
step(iter(strategy.experimental_distribute_dataset(numbers)))
