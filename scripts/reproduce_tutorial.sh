#!/usr/bin/env bash
# Reproduce the tutorial "Custom training with tf.distribute.Strategy": Fashion-MNIST, batch 64 per tower, Adam 1e-3, ten epochs,
# losses divided by the global batch. Prints the epoch lines beside the tutorial's numbers, then restores the weights of the last
# epoch on 1, 2 and 4 towers: the accuracy must equal the saved one bit for bit. The mean test accuracy of epochs 8 to 10 must agree
# within 0.6 points; the mean is used because at a constant rate consecutive epochs differ by as much as 0.8.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
scripts/build.sh build --preset cpu
towers=build/towers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

reference="1 0.51064 81.780 0.39399 85.79
2 0.33627 87.913 0.35871 86.77
3 0.29287 89.268 0.29995 89.04
4 0.26058 90.420 0.28474 89.47
5 0.23641 91.322 0.26422 90.41
6 0.21925 91.905 0.26506 90.48
7 0.20017 92.670 0.25026 90.90
8 0.18381 93.265 0.25858 90.96
9 0.16993 93.675 0.26234 91.02
10 0.15757 94.163 0.25516 90.93"

# run TOWERS BATCH CHECK: ten epochs; CHECK=yes compares epochs 8 to 10 with the tutorial's
failed=0
run() {
    local n=$1 batch=$2 check=$3 run=$work/run-$1x$2
    echo "== $n tower(s), batch $batch each, global batch $((n * batch))"
    $towers train fashion_cnn --towers "$n" -b "$batch" --opt adam --lr 0.001 --epochs 10 --loss-divisor global-batch \
        --no-augment --output-dir "$work" --experiment "run-${n}x$batch" --quiet
    # results.csv: epoch,step,train_loss,train_top1,test_loss,test_top1,...
    tail -n +2 "$run/results.csv" | paste -d' ' - <(echo "$reference") | awk -F'[, ]' -v check="$check" '{
        ref = NF - 4
        printf "Epoch %d, Loss: %.5f, Accuracy: %.3f, Test Loss: %.5f, Test Accuracy: %.2f   | tutorial: %s, %s, %s, %s\n",
            $1, $3, 100 * $4, $5, 100 * $6, $(ref + 1), $(ref + 2), $(ref + 3), $(ref + 4)
        if ($1 >= 8) { gap += 100 * $6 - $(ref + 4); epochs++ }
    } END {
        gap /= epochs
        printf "mean test accuracy of epochs 8 to 10: %+.2f points from the tutorial%s\n", gap, check == "yes" ? " (allowed: 0.6)" : ""
        exit check == "yes" && (gap > 0.6 || gap < -0.6)
    }' || failed=1
    restore "$run"
}

# Evaluate again on 1, 2 and 4 towers; the accuracy must be the saved one.
restore() {
    local saved restored m
    saved=$(tail -n 1 "$1/results.csv" | cut -d, -f6)
    for m in 1 2 4; do
        restored=$($towers eval fashion_cnn --dataset fmnist --weights "$1/last.safetensors" --towers "$m" --json --quiet | sed 's/.*"top1": \([0-9.e-]*\).*/\1/')
        if awk -v a="$saved" -v b="$restored" 'BEGIN { exit !(a + 0 == b + 0) }'; then
            echo "restored on $m tower(s): test accuracy $saved, equal to the saved one"
        else
            echo "restored on $m tower(s): test accuracy $restored, saved was $saved"
            failed=1
        fi
    done
}

run 1 64 yes # the run of the tutorial's table
run 2 32 yes # the same global batch on two towers
run 2 64 no  # the tutorial's rule, 64 per replica: twice the batch at the same rate learns slightly later
exit $failed
