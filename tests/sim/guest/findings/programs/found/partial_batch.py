import numpy as np
import tensorflow as tf
from tpu import strategy

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
examples = tf.data.Dataset.from_tensor_slices((np.ones((10, 2), "float32"), np.ones((10, 1), "float32")))
model.fit(examples.shuffle(10).batch(4).prefetch(1), verbose=0)  # PARTIAL_BATCH
