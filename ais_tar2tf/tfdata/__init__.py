"""Streams of records as a tf.data.Dataset. Importing most modules loads TensorFlow."""
