import tensorflow as tf
from tpu import strategy


class Model:
    variable = None


@tf.function
def step(x, model):
    if model.variable is None:  # TensorFlow then traces the first call twice
        with strategy.scope():
            model.variable = tf.Variable(2.0)
    return strategy.run(lambda x: x * model.variable, args=(x,))


model = Model()
for length in (2, 3, 2):
    step(tf.ones(length), model)
