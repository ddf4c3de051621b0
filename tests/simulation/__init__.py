"""A thousand trainers at one cluster, by discrete events: `python -m tests.simulation` says what breaks first.

The clients' decisions (order, lanes, ranges, read-ahead, retries) are those of the package, by its own functions and
defaults. What the cluster can do is assumed, in `Cluster`; nothing here is a measurement.
"""
