import tensorflow as tf
from tpu import strategy


@tf.function
def step(x, number):
    return strategy.run(lambda x: x * number, args=(x,))  # RECOMPILATION


for number in range(3):
    step(tf.ones(2), number)
