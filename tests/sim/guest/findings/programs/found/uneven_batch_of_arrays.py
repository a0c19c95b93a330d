import numpy as np
import tensorflow as tf
from tpu import strategy

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.predict(np.ones((6, 2)), batch_size=3, verbose=0)  # UNEVEN_BATCH
