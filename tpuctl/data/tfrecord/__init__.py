"""TFRecord and tf.train.Example on the wire."""
