#!/bin/sh
# One program for each GPU of two nodes, by torchrun, which starts all of them again after a failure: --resume auto continues.
# Run it on every node; without a shared home all of them need the same TOWERS_TOKEN (openssl rand -hex 32). usage: MASTER_ADDR=HOST [MASTER_PORT=29400] examples/torchrun/gpu.sh NAME MODEL --data-path DIR ...
set -eu
name=$1
shift
exec torchrun --nnodes 2 --nproc-per-node "$(nvidia-smi -L | wc -l)" --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:${MASTER_PORT:-29400}" \
    --rdzv-id "$name" --max-restarts 3 --no-python \
    towers train "$@" --device cuda --experiment "$name" --resume auto
