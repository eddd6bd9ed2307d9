#!/usr/bin/env bash
# The map of the source tree (tests/support/check_map.py): floors and rooms without circles, in includes and in calls. Then a test of
# that test: an include upward, a file opened past the door, a device library in the wrong room, a circle of rooms and one of files, a
# file without a line in its README, a comment about a file that is gone, a header that another one brings, and an include guard are
# each found and named.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
map=$source_dir/tests/support/check_map.py

python3 "$map" "$source_dir" "$(dirname "$towers")" || complain "the map of the house does not hold; the chains are above"

# finds WANTED: the small house in $work/house is refused with this line
finds() {
    local said
    said=$(python3 "$map" "$work/house") && complain "accepted: $1"
    grep -qF -- "$1" <<<"$said" || complain "wanted '$1', found: $said"
}

house() {
    rm -rf "$work/house"
    mkdir -p "$work"/house/{kernels/cpu,nccl_sync,towers/{train,guard,data},inception}
}

house
echo '#include "nccl_sync/b.h"' >"$work/house/kernels/a.h"
finds "kernels/a.h includes nccl_sync/b.h: kernels lies below nccl_sync"
house
echo '#include <cudnn.h>' >"$work/house/towers/data/a.c"
finds "towers/data/a.c includes <cudnn.h>"
house
echo '#include "kernels/cpu/a.h"' >"$work/house/towers/data/a.c"
finds "inner headers of kernels/cpu are its own"
house
echo '#include "towers/guard/b.h"' >"$work/house/towers/train/a.h"
echo '#include "towers/train/a.h"' >"$work/house/towers/guard/b.c"
finds "circle of includes: towers/guard -> towers/train -> towers/guard"
house
echo '#include "towers/guard/b.h"' >"$work/house/towers/guard/a.c"
echo '#include "towers/guard/c.h"' >"$work/house/towers/guard/b.c"
echo '#include "towers/guard/a.h"' >"$work/house/towers/guard/c.h"
finds "circle of includes: towers/guard/a -> towers/guard/b -> towers/guard/c -> towers/guard/a"
house
echo 'snprintf(text + used, bytes - used, "x");' >"$work/house/towers/data/a.c"
finds "towers/data/a.c puts a text together with snprintf"
for call in 'open(path, O_RDONLY)' 'fopen (path, "r")' 'json_load_file(path, 0, NULL)'; do
    house
    echo "x = $call; /* */" >"$work/house/towers/data/a.c"
    finds "towers/data/a.c opens a file itself"
done
house
mkdir "$work/house/inception/commands"
echo 'fprintf(to, "%d images of %-8s", count, name);' >"$work/house/inception/commands/a.c"
finds "inception/commands/a.c prints a text as it is"
house
echo 'fprintf(to, "%9lld", (long long)count);' >"$work/house/towers/data/a.c"
finds "towers/data/a.c prints or reads a long long"
house
echo 'news_tell("told"); /* tell */' >"$work/house/towers/data/a.c"
finds "towers/data/a.c has the name news_tell"
house
echo >"$work/house/towers/data/a.c"
echo 'a' >"$work/house/towers/data/README.md"
echo >"$work/house/towers/data/ab.c"
finds "towers/data/README.md does not name ab.c"
house
echo >"$work/house/towers/data/a.c"
finds "towers/data has no README.md"
for name in b.c towers/data/b.c; do
    house
    echo "/* $name */" >"$work/house/towers/data/a.c"
    echo >"$work/house/inception/b.c"
    finds "towers/data/a.c names $name in a comment"
done
house
echo '#include <math.h>' >"$work/house/kernels/status.h"
echo '#include "kernels/status.h"' >"$work/house/towers/data/a.h"
printf '#include <%s.h>\n' math time >"$work/house/towers/data/a.c"
echo '#include "towers/data/a.h"' >>"$work/house/towers/data/a.c"
finds "towers/data/a.c includes math.h again: kernels/status.h brings it"
house
echo '#include "kernels/b.h"' | tee "$work/house/towers/data/a.h" >"$work/house/towers/data/a.c"
echo '#include "towers/data/a.h"' >>"$work/house/towers/data/a.c"
finds "towers/data/a.c includes kernels/b.h again: towers/data/a.h brings it"
house
printf '#ifndef A_H\n#define A_H\n#endif\n' >"$work/house/towers/data/a.h"
finds "towers/data/a.h has an include guard"
house
echo '#include "kernels/b.h" // fopen(path)' >"$work/house/towers/data/a.c"
echo 'a' >"$work/house/towers/data/README.md"
python3 "$map" "$work/house" >/dev/null || complain "an include downward is refused"

check_end "includes and calls go down, and no circle exists"
