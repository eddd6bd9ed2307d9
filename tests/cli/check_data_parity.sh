#!/usr/bin/env bash
# Decoding, resizing and augmentations equal Pillow's, pixel by pixel (scripts/data_parity.py); crops of JPEG files found in this
# machine's documentation equal the same part of a full decode. Exits 77 without Pillow.
set -euo pipefail
source=$1
driver=$(dirname "$2")/tests/image_driver

/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "SKIPPED: no Pillow (package python3-pil)"; exit 77; }
/usr/bin/python3 "$source/scripts/data_parity.py" "$driver"

photos=$(find /usr/share/doc/opencv-doc -name '*.jpg' -size -300k 2>/dev/null | sort | awk 'NR % 4 == 0' | grep -v ' ' || true)
[ -n "$photos" ] || exit 0
differ=$(awk '{print "compare " $0 " 5"}' <<<"$photos" | "$driver" | grep -v '^same$' || true)
[ -z "$differ" ] || { echo "$differ"; exit 1; }
echo "$(wc -l <<<"$photos") photographs: crops are equal to the whole"
