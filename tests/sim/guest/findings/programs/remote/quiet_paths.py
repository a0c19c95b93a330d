import tempfile

import numpy as np
import tensorflow as tf
from tpu import strategy

on_this_host = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, verbose=0)
with tempfile.TemporaryDirectory() as folder:
    path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint", options=on_this_host)
    tf.train.Checkpoint(model=model).restore(path, options=on_this_host).assert_existing_objects_matched()
    model.save_weights(f"{folder}/model.weights.h5")
    tf.summary.create_file_writer(folder).close()
tf.train.Checkpoint(model=model).save("ram://folder/checkpoint")
names = tf.data.Dataset.from_tensor_slices(["/no/such/file", "some text"]).map(tf.strings.length)
strategy.experimental_distribute_dataset(names.batch(2).repeat(4))
