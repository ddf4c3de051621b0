"""Reports about running work: statistics, metrics, progress bars, and warnings of long waits."""
