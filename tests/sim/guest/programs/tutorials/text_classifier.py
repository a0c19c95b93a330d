import os

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
    tpu='grpc://' + os.environ['COLAB_TPU_ADDR'])
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
print("All devices: ", tf.config.list_logical_devices('TPU'))

strategy = tf.distribute.TPUStrategy(resolver)

# %%
words = tf.random.stateless_uniform((256, 16), seed=(1, 2), maxval=100, dtype=tf.int32)
labels = tf.cast(tf.reduce_any(words < 5, axis=1), tf.int32)


def create_model():
  return tf.keras.Sequential(
      [tf.keras.layers.Embedding(100, 16),
       tf.keras.layers.GlobalMaxPooling1D(),
       tf.keras.layers.Dense(2)])


with strategy.scope():
  model = create_model()
  model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.05),
                loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=['accuracy'])

model.fit(words, labels, batch_size=64, epochs=4)

# %%
os.makedirs("checkpoint", exist_ok=True)
model.save_weights("checkpoint/tpu-model.h5")

# %%
batch_size = 64
train_dataset = tf.data.Dataset.from_tensor_slices((words, labels))
train_dataset = train_dataset.shuffle(256).repeat().batch(batch_size, drop_remainder=True)
train_dataset = strategy.experimental_distribute_dataset(train_dataset)

with strategy.scope():
  model = create_model()
  model.build((None, 16))
  optimizer = tf.keras.optimizers.Adam(learning_rate=0.05)
  training_loss = tf.keras.metrics.Mean('training_loss', dtype=tf.float32)
  training_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(
      'training_accuracy', dtype=tf.float32)

train_iterator = iter(train_dataset)


@tf.function
def train_step(iterator):
  def step_fn(inputs):
    features, labels = inputs
    with tf.GradientTape() as tape:
      logits = model(features, training=True)
      loss = tf.keras.losses.sparse_categorical_crossentropy(
          labels, logits, from_logits=True)
      loss = tf.nn.compute_average_loss(loss, global_batch_size=batch_size)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(list(zip(grads, model.trainable_variables)))
    training_loss.update_state(loss * strategy.num_replicas_in_sync)
    training_accuracy.update_state(labels, logits)

  strategy.run(step_fn, args=(next(iterator),))


for epoch in range(4):
  for step in range(4):
    train_step(train_iterator)
  print('Epoch {}: loss {}, accuracy {}'.format(
      epoch, round(float(training_loss.result()), 4), round(float(training_accuracy.result()), 4)))
  training_loss.reset_states()
  training_accuracy.reset_states()

# %%
checkpoint = tf.train.Checkpoint(model=model)
try:
  checkpoint.save("checkpoint/tpu-model")
except tf.errors.UnimplementedError as error:
  print(error.message)

local = tf.train.CheckpointOptions(experimental_io_device='/job:localhost')
print("Saved: ", checkpoint.write("checkpoint/tpu-model", options=local))
