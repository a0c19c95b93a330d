import numpy as np
import tensorflow as tf
from tpu import strategy

with strategy.scope():
    layers = [tf.keras.layers.RandomRotation(0.1), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential([tf.keras.Input((4, 4, 1)), *layers])
    model.compile("sgd", "mse")
model.fit(np.ones((4, 4, 4, 1)), np.ones((4, 1)), verbose=0)  # UNSUPPORTED_OP
# raises InvalidArgumentError: Compilation failure: Detected unsupported operations when trying to compile
