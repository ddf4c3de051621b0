"""How fast this is, as ratios to peers on the same bytes from the same server: `python -m tests.benchmarks`."""
