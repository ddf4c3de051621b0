"""Conversion between bytes and values of fields: schemas, tf.train.Example, decoders, arrays, HDF5."""
