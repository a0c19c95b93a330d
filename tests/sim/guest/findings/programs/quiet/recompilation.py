import numpy as np
import tensorflow as tf
from tpu import strategy


@tf.function
def step(iterator, scale):
    for _ in tf.range(2):
        strategy.run(lambda x: x * scale, args=(next(iterator),))


numbers = tf.data.Dataset.from_tensor_slices(tf.ones(8)).batch(4)
for epoch in range(4):
    step(iter(strategy.experimental_distribute_dataset(numbers)), tf.constant(float(epoch)))
for width in (2, 3, 4):
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((width,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((8, width)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
    model.fit(np.ones((8, width)), np.ones((8, 1)), batch_size=4, verbose=0)
