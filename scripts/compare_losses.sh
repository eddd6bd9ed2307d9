#!/usr/bin/env bash
# How well does the last tower's loss represent the run? Trains inception_mini on Fashion-MNIST with four towers (a minute or two on
# two cores) and prints the output of `towers compare`, then the same at learning rate 0, where only sampling changes the loss. With
# Chromium, the top of the report becomes docs/images/report-light.png and report-dark.png.
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

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $browser ]]; then
    echo "Chromium is not installed: no pictures of $learnt/report.html"
    exit 0
fi
sandbox=()
[[ $(id -u) == 0 ]] && sandbox=(--no-sandbox) # Chromium does not sandbox for root
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
for mode in light dark; do
    scheme=1
    [[ $mode == dark ]] && scheme=0
    "$browser" --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --user-data-dir="$profile" \
        --window-size=1200,1130 --force-device-scale-factor=1.5 --blink-settings=preferredColorScheme=$scheme \
        --screenshot="$PWD/docs/images/report-$mode.png" "file://$(realpath "$learnt")/report.html" >/dev/null 2>&1
    echo "docs/images/report-$mode.png"
done
