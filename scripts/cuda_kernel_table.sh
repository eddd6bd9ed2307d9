#!/usr/bin/env bash
# Registers, spills, local and shared memory of every CUDA kernel of our own, from ptxas.
#
#   scripts/cuda_kernel_table.sh [--write] [--arch "75 80 90 100"]
#
# Compiles kernels/cuda/*.cu for each architecture with warnings as errors and prints a table in Markdown for the last
# one; --write puts it into docs/cuda-kernels.md. Exit 1 if any kernel spills registers or uses local memory, on any
# architecture; exit 77 where there is no nvcc.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
write=0
archs="75 80 100 90"
while [ $# -gt 0 ]; do
    case $1 in
    --write) write=1 ;;
    --arch) archs=$2 && shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || { echo "no nvcc: the kernels are not compiled" && exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile() {
    local arch=$1 source=$2 log
    log=$work/$arch.$(basename "$source" .cu).log
    "$nvcc" -std=c++17 -O3 -I"$root" -gencode "arch=compute_$arch,code=sm_$arch" -Werror all-warnings \
        -Xcompiler -Wall,-Wextra,-Wno-unused-parameter -Xptxas -v --resource-usage -c "$source" -o "$log.o" >"$log" 2>&1 ||
        { cat "$log" && echo "$source does not compile for sm_$arch" && exit 1; }
    rm -f "$log.o"
}
for arch in $archs; do
    for source in "$root"/kernels/cuda/*.cu; do compile "$arch" "$source"; done
done

python3 - "$work" "$root/docs/cuda-kernels.md" "$write" $archs <<'PY'
import glob, os, re, subprocess, sys

work, page, write, archs = sys.argv[1], sys.argv[2], sys.argv[3] == "1", sys.argv[4:]
FORMATS = {"float, 4": "f32, 16 bytes", "F16, 8": "f16, 16 bytes", "BF16, 8": "bf16, 16 bytes", "Any, 1": "any, single"}


def kernels_of(log):
    name, spilled = None, None
    for line in open(log):
        if found := re.search(r"entry function '(\S+)'", line):
            name = found[1]
        if found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = tuple(map(int, found.groups()))
        if name and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            yield name, int(found[1]), spilled, int(shared[1]) if shared else 0
            name = None


def readable(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"\(.*", "", re.sub(r"^void ", "", line)).replace("(int)", "") for line in text.splitlines()]


def row(plain):
    found = re.match(r"(\w+)<(\w+, \d+)(?:, (\w+))?>", plain)
    if not found or found[2] not in FORMATS:
        return plain, ""
    return found[1] + (f" of {found[3]}" if found[3] else ""), FORMATS[found[2]]


bad, rows = 0, []
for arch in archs:
    for log in sorted(glob.glob(f"{work}/{arch}.*.log")):
        source = os.path.basename(log).split(".")[1]
        found = list(kernels_of(log))
        for (_, registers, spilled, shared), plain in zip(found, readable([k[0] for k in found])):
            if any(spilled):
                print(f"sm_{arch} {source}.cu {plain}: {spilled[0]} bytes of local memory, {spilled[1]} + {spilled[2]} spilled")
                bad += 1
            if arch == archs[-1]:
                rows.append((source, *row(plain), registers, shared))
lines = ["# CUDA kernels", "",
         f"Every kernel of our own, compiled for sm_{archs[-1]}. Made by `scripts/cuda_kernel_table.sh --write`; a test",
         "fails if a kernel spills registers or uses local memory on any of sm_75, 80, 90 and 100. Blocks have at most 256",
         "threads, and three fit a multiprocessor (at most 85 registers).", "",
         "| file | kernel | format, access | registers | shared bytes |", "|---|---|---|---:|---:|"]
lines += [f"| {s}.cu | {k} | {f} | {r} | {m} |" for s, k, f, r, m in sorted(set(rows))]
if write and not bad:
    open(page, "w").write("\n".join(lines) + "\n")
elif not bad:
    print("\n".join(lines))
sys.exit(1 if bad else 0)
PY
