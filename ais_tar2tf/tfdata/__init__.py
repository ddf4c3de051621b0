"""Record streams as a tf.data.Dataset. `graphs`, and what builds on it, loads TensorFlow; others do when called."""
