"""Selection in the cluster: AIStore selects members or records of a shard, and sends nothing else."""
