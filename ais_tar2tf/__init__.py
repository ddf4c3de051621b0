"""Tar shards in an object store become a tf.data.Dataset, without losing or repeating a record."""
