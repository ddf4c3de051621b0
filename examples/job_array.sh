#!/usr/bin/env bash
# Convert the shards of a bucket in a Slurm job array, each job a share. When all are done, publish the shares:
#
#   array=$(sbatch --parsable --array=0-7 examples/job_array.sh 'ais://imagenet/train-{000..146}.tar' /shared/out)
#   sbatch --dependency="afterok:$array" --wrap "ais-tar2tf finish /shared/out"
#
# With sbatch --requeue, a preempted job continues with its unfinished files.
#SBATCH --cpus-per-task=4 --mem=4G --time=4:00:00
set -euo pipefail

exec ais-tar2tf convert "$1" "$2" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --workers "${SLURM_CPUS_PER_TASK:-1}"
