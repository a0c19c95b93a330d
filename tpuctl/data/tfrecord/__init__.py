"""TFRecord framing, and tf.train.Example encoded and decoded."""
