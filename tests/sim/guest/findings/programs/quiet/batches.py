import numpy as np
import tensorflow as tf
from tpu import strategy

numbers = tf.data.Dataset.range(10)
for batches in (
    numbers.batch(4, drop_remainder=True),
    numbers.take(8).batch(4),
    numbers.batch(4).take(2),
    numbers.batch(16),
    numbers.filter(lambda number: number > 5).batch(4),
):
    for batch in strategy.experimental_distribute_dataset(batches):
        assert strategy.experimental_local_results(batch)
first = iter(strategy.experimental_distribute_dataset(numbers.batch(4)))
next(first), next(first)
strategy.distribute_datasets_from_function(lambda context: numbers.take(9).batch(3))

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
examples = tf.data.Dataset.from_tensor_slices((np.ones((10, 2), "float32"), np.ones((10, 1), "float32")))
model.fit(examples.batch(4), steps_per_epoch=2, verbose=0)
model.fit(examples.batch(4, drop_remainder=True), verbose=0)
model.evaluate(examples.repeat().batch(4), steps=2, verbose=0)
model.predict(examples.batch(10), verbose=0)
model.fit(np.ones((6, 2)), np.ones((6, 1)), batch_size=8, verbose=0)
model.fit(np.ones((10, 2)), np.ones((10, 1)), batch_size=4, steps_per_epoch=2, verbose=0)
model.evaluate(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, verbose=0)
