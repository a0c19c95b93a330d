import tempfile

import tensorflow as tf
from tpu import strategy

with strategy.scope():
    checkpoint = tf.train.Checkpoint(weight=tf.Variable(1.0))
with tempfile.TemporaryDirectory() as folder:
    checkpoint.save(f"{folder}/checkpoint")  # LOCAL_PATH
# raises UnimplementedError: File system scheme '[local]' not implemented (file: '
