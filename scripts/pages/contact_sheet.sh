#!/usr/bin/env bash
# docs/images/contact-sheet.png: what `towers data show` makes of a folder of public-domain drawings (Debian's package openclipart-png),
# with the augmentations of the recipe `photos`. The drawings are put on white, since a network sees no transparency.
# usage: scripts/pages/contact_sheet.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

towers=$(towers_of "${1:-}")
/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "contact_sheet: needs Pillow (package python3-pil)" >&2; exit 5; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq openclipart-png && dpkg-deb -x openclipart-png_*.deb .) 2>/dev/null ||
    { echo "contact_sheet: apt-get cannot fetch the package openclipart-png" >&2; exit 5; }
/usr/bin/python3 - "$work/usr/share/openclipart/png" "$work/drawings" <<'PYTHON'
import os, sys
from PIL import Image
for name in ("animals", "buildings", "food", "transportation"):
    paths = sorted(os.path.join(d, f) for d, _, files in os.walk(os.path.join(sys.argv[1], name)) for f in files
                   if f.endswith(".png") and os.path.getsize(os.path.join(d, f)) < 100000)
    os.makedirs(os.path.join(sys.argv[2], name))
    for at, path in enumerate(paths[::len(paths) // 40][:40]):
        drawing = Image.open(path).convert("RGBA")
        page = Image.new("RGBA", drawing.size, "white")
        page.alpha_composite(drawing)
        page.thumbnail((256, 256))
        page.convert("RGB").save(os.path.join(sys.argv[2], name, "%02d.jpg" % at), quality=90)
PYTHON
XDG_CACHE_HOME=$work "$towers" data show "$work/drawings" --augment --crop-area 0.35 --color-jitter 0.2 --img-size 64 --seed 4 -o docs/images/contact-sheet.png |
    sed "s|$work/||"
