"""Compare the speed of this package with other libraries on the same bytes: `python -m tests.benchmarks`."""
