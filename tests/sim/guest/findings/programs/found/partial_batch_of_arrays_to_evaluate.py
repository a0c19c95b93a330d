import numpy as np
import tensorflow as tf
from tpu import strategy

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x, y = np.ones((600, 2), "float32"), np.ones((600, 1), "float32")
model.evaluate(x, y, batch_size=96, verbose=0)  # PARTIAL_BATCH
