#!/usr/bin/env bash
# Decoding, resizing and augmentations equal Pillow's, pixel by pixel (scripts/parity/data_parity.py). Exits 77 without Pillow.
set -euo pipefail
source=$1
driver=$(dirname "$2")/tests/image_driver

/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "SKIPPED: no Pillow (package python3-pil)"; exit 77; }
/usr/bin/python3 "$source/scripts/parity/data_parity.py" "$driver"
