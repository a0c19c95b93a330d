import numpy as np
import tensorflow as tf
from tpu import strategy

model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
with strategy.scope():
    model.compile("sgd", "mse")
model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)  # OUTSIDE_SCOPE
# raises AttributeError: 'ResourceVariable' object has no attribute '_packed_variable'
