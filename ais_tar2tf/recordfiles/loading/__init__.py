"""Read record files.

1. `stored_files` opens the files of an export in a folder or a store, and refuses files that have been replaced.
2. `random_access` numbers the records of all files, and reads them one by one or as a stream.
3. `dataset` builds a `tf.data.Dataset` of them; `faults` finds out which file is damaged when TensorFlow fails.
4. `loops` yields the same records in the same order without TensorFlow; `orders` repeats TensorFlow's random orders.
5. `values` decodes the fields of these records.
6. `verify` compares all files with their manifest.
"""
