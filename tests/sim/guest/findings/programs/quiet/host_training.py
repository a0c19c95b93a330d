import numpy as np
import tensorflow as tf
from tpu import strategy

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
small = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
small.predict(np.ones((4, 2)), verbose=0)
