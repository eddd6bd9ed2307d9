#!/usr/bin/env bash
# The losses of 40 updates of wgan_gp_keras, ten of them of the generator, are those of PyTorch in float64 from the same weights, images
# and random numbers (wgan_losses.txt, made by scripts/parity/compare_wgan.py). Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python

python3 - "$work" <<'PYTHON' || complain "no images"
import struct, sys
count, side = 256, 28
for part in ("train", "t10k"):
    with open(f"{sys.argv[1]}/{part}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4i", 0x803, count, side, side) + bytes(i * 2654435761 >> 13 & 255 for i in range(count * side * side)))
    with open(f"{sys.argv[1]}/{part}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2i", 0x801, count) + bytes(i % 10 for i in range(count)))
PYTHON
"$towers" train wgan_gp_keras --recipe keras --width 8 --global-batch-size 16 --data-path "$work" --output-dir "$work" --experiment run \
    --device cpu --threads 2 --towers 1 --max-steps 40 --quiet --seed 0 >/dev/null 2>"$work/err" </dev/null || complain "exit $?: $(tail -2 "$work/err")"
sed -E 's/.*"mean_loss":([^,]*),.*/\1/' "$work/run/metrics.jsonl" | paste - "$1/tests/cli/wgan_losses.txt" |
    awk '{ d = $1 - $2; if (d < 0) d = -d; s = $2 < 0 ? -$2 : $2; if (s > top) top = s; if (!(d <= 1e-3 * top)) { print "update " NR ": " $0; bad = 1 } }
        END { exit bad || NR != 40 }' || complain "other losses than PyTorch's"

check_end "wgan_gp_keras has the losses of PyTorch"
