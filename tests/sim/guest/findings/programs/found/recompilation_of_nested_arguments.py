import tensorflow as tf
from tpu import strategy


@tf.function
def step(batch, sizes):
    return strategy.run(lambda x: x["a"] + float(sum(sizes)), args=(batch,))  # RECOMPILATION


for size in (1, 2, 3):
    step({"a": tf.ones(2), "b": tf.ones([4, 1])}, [size, 7])
