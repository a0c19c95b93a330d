import tensorflow as tf
from tpu import strategy

on_host = tf.distribute.InputOptions(experimental_fetch_to_device=False)
ragged = tf.data.Dataset.range(4).map(tf.range).ragged_batch(2)
strategy.experimental_distribute_dataset(ragged, on_host)
strategy.experimental_distribute_dataset(ragged.map(lambda rows: rows.to_tensor(shape=(2, 4))))
sparse = tf.data.Dataset.from_tensor_slices(tf.sparse.eye(4)).batch(2)
strategy.experimental_distribute_dataset(sparse.map(tf.sparse.to_dense))
names = tf.data.Dataset.from_tensor_slices(["a", "b"]).map(tf.strings.length).batch(2)
strategy.distribute_datasets_from_function(lambda context: names)


@tf.function(input_signature=[tf.TensorSpec((None, 3))])
def step(x):
    return strategy.run(lambda x, scale: x * scale, args=(x,), kwargs={"scale": 2.0})


step(tf.ones((2, 3)))
step(tf.ones((4, 3)))
