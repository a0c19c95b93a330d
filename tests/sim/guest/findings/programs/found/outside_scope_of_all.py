import tensorflow as tf
from tpu import strategy

model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam()


def replica(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))  # OUTSIDE_SCOPE


@tf.function
def step(x):
    strategy.run(replica, args=(x,))


step(tf.ones((4, 2)))
# raises RuntimeError: in user code:
