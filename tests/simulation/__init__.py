"""Simulate a thousand trainers that read from one cluster: `python -m tests.simulation` shows what breaks first.

It is a discrete-event simulation. The clients' order, lanes, ranges, read-ahead and retries are computed by the
package's own functions with its defaults. The abilities of the cluster are assumptions, stated in `Cluster`; nothing
is measured.
"""
