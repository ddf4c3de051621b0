"""Record files, written here or elsewhere: `files` finds and opens them, `dataset` reads them by tf.data."""
