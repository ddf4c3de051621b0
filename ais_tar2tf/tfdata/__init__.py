"""Record streams as a tf.data.Dataset. `dataset` loads TensorFlow; `chunks` and `tracing` do when called."""
