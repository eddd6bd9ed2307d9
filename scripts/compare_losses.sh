#!/usr/bin/env bash
# How well does the last tower's loss represent the run? Trains inception_mini on Fashion-MNIST with four towers (a minute or two on
# two cores) and prints the output of `towers compare`, then the same at learning rate 0, where only sampling changes the loss.
# TOWERS=BINARY uses an existing binary.
set -euo pipefail
cd "$(dirname "$0")/.."

towers=${TOWERS:-}
if [[ -z $towers ]]; then
    scripts/setup.sh build
    scripts/build.sh build --preset cpu
    towers=build/towers
fi
runs=${RUNS:-runs} name=compare-losses-$(date +%Y%m%d-%H%M%S)
learnt=$runs/$name still=$runs/$name-still

"$towers" train inception_mini --towers 4 --batch-size 16 --max-steps 800 --log-interval 100 --summary-interval 20 \
    --output-dir "$runs" --experiment "$name"
"$towers" train inception_mini --towers 4 --batch-size 16 --max-steps 200 --lr 0 --eval-interval 0 --summary-interval 0 \
    --no-augment --quiet --output-dir "$runs" --experiment "$name-still"

echo
echo "== while training"
"$towers" compare "$learnt"
echo
echo "== at learning rate 0"
"$towers" compare "$still"
