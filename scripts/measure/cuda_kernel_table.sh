#!/usr/bin/env bash
# Registers, spills, local and shared memory of every CUDA kernel of this project, from ptxas.
#
#   scripts/measure/cuda_kernel_table.sh [--write] [--arch "75 80 90 100 120"]    compiles the .cu files of kernels/cuda, warnings as errors
#   scripts/measure/cuda_kernel_table.sh --logs BUILD/cuda                    reads the logs of a build
#
# Prints a table in Markdown with a column of registers for each architecture; --write writes it to docs/results/cuda-kernels.md. Exits with 1
# if a kernel spills registers, uses local memory or waits for each of its wgmma, or if a build with the compiler named in that page has other
# kernels than listed there or many more registers; with 77 without nvcc or logs.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
write=0
archs="75 80 90 100 120"
logs=
while [ $# -gt 0 ]; do
    case $1 in
    --write) write=1 ;;
    --arch) archs=$2 && shift ;;
    --logs) logs=$2 && shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || nvcc=/usr/local/cuda/bin/nvcc
[ -n "$nvcc" ] || { echo "SKIPPED: nvcc is not installed" && exit 77; }
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

if [ -z "$logs" ]; then
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    for source in "$root"/kernels/cuda/*.cu "$root"/kernels/cuda/*/*.cu; do
        codes=()
        for arch in $archs; do
            [[ $arch != 90 || $source != *wgmma* ]] || arch=90a # as in cmake/TowersCuda.cmake
            codes+=(-gencode "arch=compute_$arch,code=sm_$arch")
        done
        log=$logs/$(basename "$source" .cu).log
        "$nvcc" -std=c++17 -O3 -lineinfo --expt-relaxed-constexpr --threads 0 -I"$root" "${codes[@]}" -Werror all-warnings \
            -Xcompiler -Wall,-Wextra,-Wno-unused-parameter -Xptxas -v -c "$source" -o "$log.o" >"$log" 2>&1 ||
            { cat "$log" && echo "$source does not compile for all of sm_$archs" && exit 1; }
        rm -f "$log.o"
    done
else
    ls "$logs"/*.log >/dev/null 2>&1 || { echo "SKIPPED: $logs has no logs, because this build has compiled no kernels" && exit 77; }
    [ $write = 0 ] || { echo "--write compiles for all architectures and cannot be used with --logs" >&2 && exit 2; }
    write=-1
fi

"$root/scripts/setup.sh" python
python3 - "$logs" "$root/docs/results/cuda-kernels.md" "$write" "$release" <<'PY'
import glob, os, re, subprocess, sys

logs, page, write, release = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
MORE = 8  # a difference of up to this many registers is not reported
FORMATS = {"float, 4": "f32, 16 bytes", "F16, 8": "f16, 16 bytes", "BF16, 8": "bf16, 16 bytes", "Any, 1": "any, single"}


def kernels_of(log):
    """(architecture, mangled name, registers, (stack, stored, loaded), shared bytes) of every kernel."""
    name = arch = spilled = None
    for line in open(log):
        if found := re.search(r"entry function '(\S+)' for 'sm_(\d+)a?'", line):
            name, arch = found[1], int(found[2])
        if found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = tuple(map(int, found.groups()))
        if name and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            yield arch, name, int(found[1]), spilled, int(shared[1]) if shared else 0
            name = None


def readable(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"\(.*", "", re.sub(r"^void ", "", line.replace("(int)", ""))) for line in text.splitlines()]


def row(plain):
    found = re.match(r"(\w+)<(\w+, \d+)(?:, (\w+))?>", plain)
    if not found or found[2] not in FORMATS:
        return plain, ""
    return found[1] + (f" of {found[3]}" if found[3] else ""), FORMATS[found[2]]


bad, kernels, shared_bytes, archs = 0, {}, {}, set()
for log in sorted(glob.glob(f"{logs}/*.log")):
    source = os.path.basename(log)[:-4]
    for line in open(log):
        if "wgmma.mma_async instructions are serialized" in line:  # each product waits for the one before it
            print(f"{source}.cu: {line.strip()}")
            bad += 1
    found = list(kernels_of(log))
    for (arch, _, registers, spilled, shared), plain in zip(found, readable([k[1] for k in found])):
        if any(spilled):
            print(f"sm_{arch} {source}.cu {plain}: {spilled[0]} bytes of local memory, {spilled[1]} + {spilled[2]} spilled")
            bad += 1
        key = (source, *row(plain))
        archs.add(arch)
        kernels.setdefault(key, {})[arch] = registers
        shared_bytes[key] = shared
archs = sorted(archs)
if not kernels:
    sys.exit(f"{logs} names no kernel")
names = ", ".join(f"sm_{a}" for a in archs)
lines = ["# CUDA kernels", "",
         f"Every kernel of our own, compiled by CUDA {release} for {names}: registers on each. Made by",
         "`scripts/measure/cuda_kernel_table.sh --write`; a test reads the compiler's reports, and fails if a kernel spills registers",
         "or uses local memory. Blocks have at most 256 threads, and three fit a multiprocessor (at most 85 registers); those of",
         "direct_kernel have at most 128, and four fit (at most 128 registers), as of dw_kernel, but with 4 groups of inputs: of those", "three fit with 32 outputs, two with 64. Of the gradients in pool_norm.cu two fit; of wgmma_dw_kernel, with 384 threads, one", "(at most 168 registers, and none of its products may wait for another; its shared memory is that of the launch).", "",
         "| file | kernel | format, access | " + " | ".join(f"sm_{a}" for a in archs) + " | shared bytes |",
         "|---|---|---|" + "---:|" * (len(archs) + 1)]
for key in sorted(kernels):
    cells = " | ".join(str(kernels[key].get(a, "")) for a in archs)
    lines.append(f"| {key[0]}.cu | {key[1]} | {key[2]} | {cells} | {shared_bytes[key]} |")


def page_registers():
    """What the page says of each kernel: {(file, kernel, format): {architecture: registers}}; {} if another compiler made it."""
    text = open(page).read()
    if f"by CUDA {release} " not in text:
        return {}
    table = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    heads = {i: int(cell[3:]) for i, cell in enumerate(table[0]) if cell.startswith("sm_")}
    return {(r[0][:-3], r[1], r[2]): {a: int(r[i]) for i, a in heads.items() if r[i]} for r in table[2:]}


if write < 0:
    known = page_registers()
    for key in sorted(set(known) ^ set(kernels)) if known else []:
        print(f"{key[0]}.cu {key[1]} ({key[2]}) is not on the page and in the build: scripts/measure/cuda_kernel_table.sh --write")
        bad += 1
    for key in sorted(set(known) & set(kernels)):
        for arch in set(known[key]) & set(kernels[key]):
            if kernels[key][arch] > known[key][arch] + MORE:
                print(f"{key[0]}.cu {key[1]} ({key[2]}): {kernels[key][arch]} registers on sm_{arch}, {known[key][arch]} on the page")
                bad += 1
    print(f"{len(kernels)} kernels for {names}")
elif write and not bad:
    open(page, "w").write("\n".join(lines) + "\n")
elif not bad:
    print("\n".join(lines))
sys.exit(1 if bad else 0)
PY
