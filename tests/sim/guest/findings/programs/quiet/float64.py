import numpy as np
import tensorflow as tf
from tpu import strategy

SCALE = np.float64(2.0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(np.float64(0.1)), "mse")
model.fit(np.ones((4, 2)), np.ones((4, 1)), class_weight={1: SCALE}, verbose=0)


@tf.function
def step(x):
    return strategy.run(lambda x: x * SCALE + np.linspace(0.0, 1.0, 2), args=(x,))


step(tf.ones(2))
