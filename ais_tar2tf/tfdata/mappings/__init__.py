"""A user's mapping: the function that turns a record into the element of a dataset.

`tracing` decides how the mapping runs: as a TensorFlow graph, or as Python. `mapping` holds the classes of these two
forms. A mapping gets a `traced_record` while it is traced, and a `python_record` when it runs as Python. `outputs`
checks the values that the mapping returns. `calls` runs the mapping inside a tf.data pipeline, and `concurrency`
limits the number of calls at the same time.

Importing `calls` loads TensorFlow. The other modules load it when one of their functions is called.
"""
