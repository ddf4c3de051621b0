#!/usr/bin/env bash
# A Slurm job array converts the shards of a bucket, each job its share; when all are done, one publishes them:
#
#   array=$(sbatch --parsable --array=0-7 examples/job_array.sh 'ais://imagenet/train-{000..146}.tar' /shared/out)
#   sbatch --dependency="afterok:$array" --wrap "ais-tar2tf finish /shared/out"
#
# A job that was preempted goes on with the files that are not finished: sbatch --requeue.
#SBATCH --cpus-per-task=4 --mem=4G --time=4:00:00
set -euo pipefail

exec ais-tar2tf convert "$1" "$2" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --workers "${SLURM_CPUS_PER_TASK:-1}"
