#!/usr/bin/env bash
# The map of the source tree (tests/support/check_map.py): floors and rooms without circles, in includes and in calls. Then a test of
# that test: an include upward, a file opened past the door, a device library in the wrong room, a circle of rooms and one of files, a
# file without a line in its README, a comment about a file that is gone, a header that another one brings, an include guard, a time, an
# array for all towers, a wait for storage, a change of options in the wrong place, a circle of calls of files, and a room
# of too many files are each found and named.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
map=$source_dir/tests/support/check_map.py

python3 "$map" "$source_dir" "$(dirname "$towers")" || complain "the map of the house does not hold; the chains are above"
python3 "$map" --calls | diff - <(sed '1,/<!-- calls: begin -->/d; /<!-- calls: end -->/,$d' "$source_dir/CONTRIBUTING.md") >"$out" ||
    complain "CONTRIBUTING.md has other calls than check_map.py --calls prints: $(cat "$out")"
roads=$source_dir/scripts/check/roads.py
python3 "$roads" "$source_dir" >"$out" || complain "a road got longer: $(cat "$out")"
sed 's/(12, CPU/(11, CPU/' "$roads" >"$work/roads.py"
python3 "$work/roads.py" "$source_dir" >"$out" 2>"$err" && complain "a road that got longer is accepted"
grep -q "'f32 3x3 forward on a CPU' had 11 files" "$err" || complain "a road that got longer: $(cat "$err")"
house=$source_dir/scripts/check/house.py
python3 "$house" >"$out" || complain "a number of the house is above its limit: $(grep 'ABOVE IT' "$out")"
mkdir -p "$work/scripts/check" "$work/tests/support" "$work/towers/train"
cp "$house" "$roads" "$work/scripts/check" && cp "$map" "$work/tests/support"
sed -i 's/^ROADS = {/ROADS = {} if True else {/' "$work/scripts/check/roads.py"
echo 'enum { PAUSE_MS = 5 };' >"$work/towers/train/a.c"
python3 "$work/scripts/check/house.py" >"$out" && complain "a time outside of timeouts.h is above no limit"
grep -q 'timeouts.h *1  at most 0  ABOVE IT' "$out" || complain "a time outside of timeouts.h is not counted: $(cat "$out")"
rm "$work/towers/train/a.c"
python3 "$work/scripts/check/house.py" >"$out" || complain "a house without files is above a limit: $(cat "$out")"
mkdir -p "$work/kernels/cpu" "$work/cmake"
for name in a b c; do
    echo "add_library(${name}_lib STATIC $name.c)" && echo 'target_link_libraries('$name'_lib PUBLIC $<TARGET_OBJECTS:d> '"$(tr abc bab <<<$name)_lib) # each"
    echo "sum = words_multiply(sum, $name); isa = __builtin_cpu_supports(\"avx\");" >"$work/kernels/cpu/$name.c"
done | tee "$work/CMakeLists.txt" | sed 's/_lib\b/_x/g' >"$work/cmake/x.cmake"
python3 "$work/scripts/check/house.py" >"$out" && complain "circles of libraries are above no limit"
for row in 'circles of libraries *2  at most 1' 'micro-kernels.* 3  at most 2' 'decide the instruction set *3  at most 1'; do
    grep -q "$row  ABOVE IT" "$out" || complain "no row '$row': $(cat "$out")"
done

# finds WANTED [OBJECTS]: the small house in $work/house, with its object files, is refused with this line
finds() {
    local said
    said=$(python3 "$map" "$work/house" "${@:2}") && complain "accepted: $1"
    grep -qF -- "$1" <<<"$said" || complain "wanted '$1', found: $said"
}

house() {
    rm -rf "$work/house"
    mkdir -p "$work"/house/{kernels/{base,cpu},nccl_sync,towers/{train,guard,data},inception}
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
echo 'double norm[TOWERS_MAX];' >"$work/house/towers/train/a.c"
finds "towers/train/a.c sizes an array by the most towers or ranks of any run"
house
echo 'enum { PAUSE_MS = 5 };' >"$work/house/nccl_sync/a.c"
finds "nccl_sync/a.c has a time of its own"
house
mkdir "$work/house/towers/files" && echo 'if (fsync(fd) != 0)' >"$work/house/towers/files/a.c"
finds "towers/files/a.c waits for storage unseen"
house
echo 'if (strcmp(a->class_names[i], b->class_names[k]))' >"$work/house/towers/data/a.c"
finds "towers/data/a.c compares classes: call class_match"
house
mkdir "$work/house/towers/data/sources" && echo 'names_find(train, name);' >"$work/house/towers/data/sources/folder.c"
finds "towers/data/sources/folder.c compares labels of two sources without class_match"
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
for call in '__builtin_cpu_supports("avx2")' 'dnnl_get_effective_cpu_isa()'; do
    house
    echo "return $call;" >"$work/house/kernels/cpu/a.c"
    finds "kernels/cpu/a.c asks for the processor's instructions"
done
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
echo '#include <math.h>' >"$work/house/kernels/base/status.h"
echo '#include "kernels/base/status.h"' >"$work/house/towers/data/a.h"
printf '#include <%s.h>\n' math time >"$work/house/towers/data/a.c"
echo '#include "towers/data/a.h"' >>"$work/house/towers/data/a.c"
finds "towers/data/a.c includes math.h again: kernels/base/status.h brings it"
house
echo '#include "kernels/b.h"' | tee "$work/house/towers/data/a.h" >"$work/house/towers/data/a.c"
echo '#include "towers/data/a.h"' >>"$work/house/towers/data/a.c"
finds "towers/data/a.c includes kernels/b.h again: towers/data/a.h brings it"
house
printf '#ifndef A_H\n#define A_H\n#endif\n' >"$work/house/towers/data/a.h"
finds "towers/data/a.h has an include guard"
house
mkdir -p "$work/house/inception/job"
echo 'void f(const Options *a, Options *b) { g = a->lr == 1; b->lr = 1; }' >"$work/house/inception/job/a.c"
finds "inception/job/a.c assigns to options (b)"
house
mkdir -p "$work/house/inception/job"
echo 'if (o->verb != VERB_TRAIN) return;' >"$work/house/inception/job/a.c"
finds "inception/job/a.c asks for the command's name"
for text in 'struct S { Options options; }; s->options.lr = 1;' 'void f(Options *const options) { options->lr <<= 1; }' 'void f(Options *options) { ++options->lr; }'; do
    house
    mkdir -p "$work/house/inception/job" && echo "$text" >"$work/house/inception/job/a.c"
    finds "inception/job/a.c assigns to options (options)"
done
house
mkdir "$work/house/towers/files" && echo 'x = rename(a, b);' >"$work/house/towers/files/a.c"
finds "towers/files/a.c calls the system with a name"
for text in 'pwritev(fd, v, 2, 0);' 'posix_fallocate(fd, 0, 1);' 'STORAGE(0), fsync(fd);'; do
    echo "$text" >"$work/house/towers/files/a.c"
    finds "towers/files/a.c waits for storage unseen"
done
while IFS='|' read -r text wanted; do
    house
    echo "$text" >"$work/house/towers/data/a.c"
    finds "towers/data/a.c $wanted"
done <<'CASES'
#define PAUSE_MS 5|has a time of its own
enum { PAUSE_SECONDS=5 };|has a time of its own
enum { PAUSE_MS = (5) };|has a time of its own
double n[TOWERS_MAX + 1];|sizes an array by the most towers
void f(double n[2 * TOWERS_MAX]) {|sizes an array by the most towers
int group[LAUNCH_RANKS_MAX], usual;|sizes an array by the most towers or ranks
pthread_cond_timedwait(&c, &m, &t);|waits by the time of day
if (strcmp(device->backend->name, "cpu") == 0)|compares the name of a backend
source->read = a_read;|fills no inventory
entry = readdir(dir);|lists a folder
CASES
house
printf 'typedef struct A {\n' | tee "$work/house/towers/data/a.c" >"$work/house/kernels/a.c"
finds "towers/data/a.c has a type A, and so has kernels/a.c"
house
mkdir -p "$work/objects/CMakeFiles/towers.dir/towers/data"
for name in a b; do
    echo "void b(void); void a(void); void $name(void) { $(tr ab ba <<<"$name")(); }" >"$work/house/towers/data/$name.c"
    cc -c "$work/house/towers/data/$name.c" -o "$work/objects/CMakeFiles/towers.dir/towers/data/$name.c.o"
done
finds "circle of calls of files: towers/data: a b" "$work/objects"
house
for name in {1..49}; do echo >"$work/house/towers/data/a$name.c"; done
finds "towers/data has 49 sources: part it, as a room has 48 at most"
house
echo '#include "kernels/b.h" // fopen(path)' >"$work/house/towers/data/a.c"
echo 'a' >"$work/house/towers/data/README.md"
python3 "$map" "$work/house" >/dev/null || complain "an include downward is refused"

check_end "includes and calls go down, and no circle exists"
