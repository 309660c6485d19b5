#!/bin/bash
# Trains on the GPUs of several machines under Slurm: sbatch scripts/slurm.sh CONFIG [OPTIONS of trainer run]
# On CPUs: DEVICE=cpu sbatch --gpus-per-task=0 scripts/slurm.sh CONFIG
# A job that is stopped or runs out of time saves its state; submitted again, it goes on.
#SBATCH --job-name=trainer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
# One for each process; with --gpu-bind or without.
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
# Two minutes before the time is over each process is asked to save and end.
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -euo pipefail

config=${1:?"usage: sbatch scripts/slurm.sh CONFIG [OPTIONS]"}
shift

# A secret of this job, which srun hands to all processes: other users of the machines cannot join it.
secret=$(head -c 24 /dev/urandom | base64 -w0)
export TRAINER_SECRET=$secret

# The first start makes the run folder; later ones go on in it. RUN_FOLDER is <run.output>/<run.name>.
resume=()
if [ -n "${RUN_FOLDER:-}" ] && [ -e "$RUN_FOLDER/config.toml" ]; then
    resume=(--resume)
fi

# --kill-on-bad-exit ends also what cannot end itself, such as a process that is stopped.
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    trainer run "$config" --device "${DEVICE:-cuda}" "${resume[@]}" "$@"
