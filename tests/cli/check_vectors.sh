#!/usr/bin/env bash
# Every loop that is compiled for kinds of processors (CPU_CLONES) is compiled to vectors: each such function of the program has packed
# instructions on the registers of its kind. A compiler that finds a branch in such a loop leaves it as it is without a word, and SiLU
# was 10 times as slow as the memory. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
[ "$(uname -m)" = x86_64 ] || { echo "SKIPPED: only x86-64 has functions for several kinds of processors" >&2; exit 77; }
command -v objdump >/dev/null || { echo "SKIPPED: no objdump" >&2; exit 77; }

# functions FILE: the name of each clone, and how many packed instructions on 32 or 64 bytes it has
functions() {
    objdump -d --no-show-raw-insn "$1" | awk '
        /^[0-9a-f]+ <.*>:$/ { name = $2 ~ /\.(arch_x86_64_v[34]|avx2|avx512bw)(\.[0-9]+)?>:$/ ? substr($2, 2, length($2) - 3) : ""; if (name) packed[name] += 0 }
        name && /%[yz]mm/ && $2 ~ /^v/ { packed[name]++ }
        END { for (name in packed) print name, packed[name] }'
}

functions "$towers" >clones
[ -s clones ] || { echo "SKIPPED: this build has one version of each function (a sanitizer?)" >&2; exit 77; }
grep -q '^activation_silu\.' clones || complain "expected SiLU among the functions with vectors, found: $(head -5 clones | xargs)"
while read -r name packed; do
    [ "$packed" -gt 0 ] || complain "$name: its loop was not compiled to vectors"
done <clones

# a loop with a branch is found
cat >branch.c <<'C'
#include <math.h>
__attribute__((noinline, target_clones("arch=x86-64-v3", "default"))) void slow(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i++) y[i] = x[i] < 1.0f ? x[i] : expf(x[i]);
}
C
if gcc -O3 -fno-math-errno -c branch.c 2>/dev/null; then
    functions branch.o >found
    grep -q '^slow\.arch_x86_64_v3 0$' found || complain "a loop without vectors is not found: $(cat found)"
else
    left_out "a loop with a branch, which must be found: no gcc that compiles target_clones"
fi
check_end "all $(wc -l <clones) functions for kinds of processors are compiled to vectors"
