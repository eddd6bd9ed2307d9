#!/usr/bin/env bash
# scripts/gpu_check.sh on a machine that is rented by the minute, rehearsed with stand-ins for its programs, for NVML and for Nsight Compute:
# clock, power and what slows the GPU down are in the rows, counters are those of the ops, a call that was killed in the middle of a step is
# continued where it stopped, and time that does not suffice is spent in the order of value. usage: check_gpu_continue.sh SOURCE_FOLDER BINARY
set -uo pipefail
source=$1
work=$(mktemp -d)
trap 'kill $(cat "$work"/left* 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "SKIPPED: no python3" >&2; exit 77; }

fail() {
    echo "check_gpu_continue: $*" >&2
    exit 1
}

# ---- the stand-ins
# NVML, by its documentation: a device is that of nvmlInit_v2 and an index, clocks are asked by type, power is in milliwatts, and each
# call that is not so ends the program. Its numbers are those of the file $FAKE_NVML, "SM_MHZ MEMORY_MHZ MILLIWATTS REASONS".
mkdir -p "$work/nvml" "$work/old" "$work/b/tests" "$work/bin" "$work/d"
cat >"$work/nvml.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
static int begun, gpu;
#define CHECK(holds) do { if (!(holds)) { fprintf(stderr, "fake NVML: %s: not so: %s\n", __func__, #holds); abort(); } } while (0)
static unsigned long long value(int column)
{
    unsigned long long v[4] = {0};
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    CHECK(file && fscanf(file, "%llu %llu %llu %llu", v, v + 1, v + 2, v + 3) == 4);
    fclose(file);
    if (column == 3) { /* the last of a sample: who waits for samples counts them */
        char path[4096];
        snprintf(path, sizeof path, "%s.asked", getenv("FAKE_NVML"));
        CHECK((file = fopen(path, "a")) && fputc('s', file) == 's' && fclose(file) == 0);
    }
    return v[column];
}
int nvmlInit_v2(void) { return begun++, 0; }
int nvmlShutdown(void) { CHECK(begun); return begun--, 0; }
__attribute__((destructor)) static void unloaded(void) { CHECK(!begun); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { CHECK(begun && index == 2 && device); return *device = &gpu, 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *to) { CHECK(begun && device == &gpu && to); return *to = (unsigned)value(2), 0; }
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *to) { CHECK(begun && device == &gpu && to && (type == 1 || type == 2)); return *to = (unsigned)value(type - 1), 0; }
#ifdef OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *to) { CHECK(begun && device == &gpu && to); return *to = value(3), 0; }
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *to) { CHECK(begun && device == &gpu && to); return *to = value(3), 0; }
#endif
C
cc -shared -fPIC -o "$work/nvml/libnvidia-ml.so.1" "$work/nvml.c" && cc -DOLD -shared -fPIC -o "$work/old/libnvidia-ml.so.1" "$work/nvml.c" || fail "no stand-in for NVML"

# Nsight Compute, by its documentation: it takes no other options and sections, counts what is launched between the profiler's marks, and
# writes the table to its log file only at the end. A kernel of each op, and one more for gradients of weights; the separator comes first.
cat >"$work/bin/ncu" <<'PY'
#!/usr/bin/env python3
import csv, subprocess, sys
words, log, sections = sys.argv[1:], None, []
wanted = {"--clock-control": ["none"], "--profile-from-start": ["off"], "--apply-rules": ["no"], "--csv": [], "--log-file": None,
          "--section": ["SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "WarpStateStats"]}
given = set()
while words and words[0].startswith("-"):
    option = words.pop(0)
    if option not in wanted:
        sys.exit(f"==ERROR== unrecognised option '{option}'. Use --help for further details.")
    given.add(option)
    if wanted[option] == []:
        continue
    value = words.pop(0)
    if option == "--log-file":
        log = value
    elif value not in wanted[option]:
        sys.exit(f"==ERROR== {option}: '{value}' is not known")
if given != set(wanted) or not words:
    sys.exit(f"==ERROR== options: {sorted(given)}")
done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
sys.stdout.write(done.stdout)
names = [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith("launched ")]
heads = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
         "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]
with open(log, "w") as file:
    file.write(f"==PROF== Connected to process 7 ({words[0]})\n")
    kernels = []
    for name in names:
        kernels += ["void map_kernel<Random, 1>(Random, unsigned int)", "sm90_xmma_fprop_implicit_gemm"] + (["void cast_kernel<float>(float *)"] if name.endswith("conv_dw") else [])
    for i, kernel in enumerate(kernels):
        file.write(f'==PROF== Profiling "{kernel[:20]}..." - {i}: 0%....50%....100% - 18 passes\n')
    file.write("==PROF== Disconnected from process 7\n")
    if done.returncode:
        sys.exit(f"==ERROR== The application returned an error code ({done.returncode}).")
    out = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    out.writerow(heads)
    for i, kernel in enumerate(kernels):
        for section, metric, unit, value in (("GPU Speed Of Light Throughput", "Duration", "us", f"{1000 + i:,}.50"), ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "71.25"),
                                             ("GPU Speed Of Light Throughput", "SM Frequency", "Ghz", "1.71"), ("Memory Workload Analysis", "Memory Throughput", "Tbyte/s", "2.95"),
                                             ("Launch Statistics", "Registers Per Thread", "register/thread", "168"), ("Occupancy", "Achieved Occupancy", "%", "n/a")):
            out.writerow([i, 7, "ops_driver", "127.0.0.1", kernel, 1, 7, "(384, 1, 1)", "(132, 1, 1)", 0, "9.0", section, metric, unit, value, "", "", "", "", ""])
PY
# The programs of the build write down how they were called. $STUB_HANG: a word of the call that hangs.
cat >"$work/b/towers" <<'STUB'
#!/bin/sh
echo "towers $*" >>"$STUB_CALLS"
case " $* " in *" $STUB_HANG "*)
    echo $$ >>"$STUB_LEFT"
    : >"$STUB_REACHED"
    exec sleep 900 ;;
esac
"${0%/b/*}/b/sampled"
case " $* " in *' --profile '*) printf '\ninception_v3, batch 256\n| op | calls |\n' >&2; more=', "profile": {"ms": 36.25, "ops": [{"layer": "a", "ms": 1.0}, {"layer": "b", "ms": 0.5}]}' ;; esac
echo "{\"images_per_sec\": 7000.5, \"jitter\": 1.0, \"last_average_loss\": 6.9, \"watts\": 680.5$more}"
STUB
cat >"$work/b/tests/ops_driver" <<'STUB'
#!/bin/sh
echo "ops_driver $*" >>"$STUB_CALLS"
for word; do
    case $word in
    launch=*) echo "${word#launch=}" | tr ',' '\n' | sed 's/^/launched /' ;;
    kinds=*) "${0%/b/*}/b/sampled"; echo "{\"kinds\": \"${word#kinds=}\", \"ops\": 203, \"rounds\": 9, \"ms\": 23.5}" ;;
    esac
done
STUB
# Until there is a sample of this program, however busy the machine is.
cat >"$work/b/sampled" <<'STUB'
#!/bin/sh
[ -z "$STUB_UNWATCHED" ] || exit 0
before=$(wc -c <"$FAKE_NVML.asked")
while [ "$(wc -c <"$FAKE_NVML.asked")" -lt $((before + 2)) ]; do sleep 0.05; done
STUB
cat >"$work/b/tests/test_ops" <<'STUB'
#!/bin/sh
echo "test_ops ${TOWERS_TEST_OP:-all}" >>"$STUB_CALLS"
echo "  cuda f32  conv               3 rows    9 runs  max error 1.00e-06 (  5 % of allowed)"
[ -n "$TOWERS_TEST_OP" ] || echo "  cuda f32  relu               1 rows    2 runs  max error 0.00e+00 (  0 % of allowed)"
STUB
printf '#!/bin/sh\ncase $1 in json) echo "{}" ;; memory) echo 4e12 ;; *) echo "${STUB_GPU:-Stub GPU}" ;; esac\n' >"$work/b/tests/gpu_driver"
printf '#!/bin/sh\necho "sanitizer $2 ${TOWERS_TEST_OP:-a step}" >>"$STUB_CALLS"\n' >"$work/bin/compute-sanitizer"
printf '#!/bin/sh\necho 500\n' >"$work/bin/nvidia-smi"
chmod +x "$work/b/towers" "$work/b/sampled" "$work"/b/tests/* "$work"/bin/*
mkdir "$work/without"
echo 'raise ImportError("no PyTorch in this test")' >"$work/without/torch.py"
export PYTHONPATH=$work/without STUB_CALLS=$work/calls STUB_HANG=nothing STUB_REACHED=$work/reached STUB_LEFT=$work/left FAKE_NVML=$work/says CUDA_VISIBLE_DEVICES=2
export XDG_CACHE_HOME=$work/cache TORCHINDUCTOR_CACHE_DIR=$work/inductor
echo '1755 3201 688000 5' >"$work/says"
: >"$work/says.asked"

call() { # OUT ARGUMENT...
    PATH="$work/bin:/usr/bin:/bin" LD_LIBRARY_PATH="${libraries-$work/nvml}" python3 "$source/scripts/gpu_check.py" --build "$work/b" --data "$work/d" --out "$1" --pack "$1.tar" --page "$1.md" "${@:2}" >"$work/run" 2>&1
}

json() { # FILE EXPRESSION: of the part p, and its rows r
    python3 -c 'import json, sys
p = json.load(open(sys.argv[1])); r = p["results"]
sys.exit(not eval(sys.argv[2]))' "$1" "$2" || fail "$1: not so: $2: $(cat "$1")"
}

# ---- one call that has time: clock, power and what slows down in each row; all ops of the profile; the counters of eight ops
call "$work/one" --total 100000 bench profile counters ops || fail "a call without problems: $(cat "$work/run")"
json "$work/one/bench.json" 'next(x for x in r if "images_per_second" in x).items() >= {"sm_mhz": 1755, "memory_mhz": 3201, "load_watts": 688, "slowed": "power 100 %", "watts": 680.5}.items()'
json "$work/one/bench.json" '[x["ops"] for x in r if x.get("alone") == "convolutions alone" and x["sm_mhz"] == 1755] == [203]'
json "$work/one/profile.json" '[len(x["ops"]) for x in r] == [2, 2] and r[0]["ms"] == 36.25 and "| op | calls |" in r[0]["text"] and r[0]["slowed"] == "power 100 %"'
json "$work/one/counters.json" 'len(r) == 8 and len(r[0]["kernels"]) == 2 and len(r[1]["kernels"]) == 1 and r[1]["counted"] == "Conv2d_4a_3x3.conv:conv"'
json "$work/one/counters.json" 'r[1]["kernels"][0] == {"kernel": "sm90_xmma_fprop_implicit_gemm", "grid": "(132, 1, 1)", "block": "(384, 1, 1)", "us": 1004.5, "memory_percent": 71.25, "sm_ghz": 1.71, "gb_per_second": 2950.0, "registers": 168}'
json "$work/one/ops.json" '[x["op"] for x in r if "runs" in x] == ["conv", "relu"] and p["passed"] == "yes" and len(p["took"]) == 10 and not p["problems"]'
for line in '| 256 | bf16 | towers | 7,000 | 7,000 |  | 680 | 1,755 | 3,201 | 688 | power 100 % |' '| convolutions alone | 203 | 23.50 | 1,755 | 3,201 | 688 | power 100 % |' \
    '| Conv2d_4a_3x3.conv, conv | `sm90_xmma_fprop_implicit_gemm` | 1,004 | 1.71 |  | 71.25 |  | 2,950 |  |  | 168 |  |'; do
    grep -qF -- "$line" "$work/one.md" || fail "the tables lack: $line in $(cat "$work/one.md")"
done
sort "$work/calls" | uniq -c | sort -rn | awk '$1 > 1 && !/--batches 1$/ { exit 1 }' || fail "measured twice: $(sort "$work/calls" | uniq -c)"
# older drivers have another name for it; without NVML rows are without clocks, and that is said
libraries=$work/old call "$work/two" --total 100000 profile && json "$work/two/profile.json" 'r[0]["slowed"] == "power 100 %"'
STUB_UNWATCHED=yes libraries=$work/none call "$work/three" --total 100000 profile || fail "without NVML: $(cat "$work/run")"
grep -q '^no clocks and no power: ' "$work/run" && json "$work/three/profile.json" '"sm_mhz" not in r[0] and len(r) == 2' || fail "without NVML: $(cat "$work/run")"
# only what happens under load counts: a GPU that is mostly idle is not slowed down by its power
python3 - "$source/scripts/measure" <<'PY' || fail "the samples of a run"
import sys
sys.path.insert(0, sys.argv[1])
import gpu_counters, gpu_watch
watch = gpu_watch.Watch.__new__(gpu_watch.Watch)
watch.samples = [(0.0, 345, 3201, 90.0, 1), (1.0, 1980, 3201, 690.0, 4), (1.2, 1700, 3201, 700.0, 4 | 32), (1.4, 1740, 3201, 650.0, 0), (9.0, 345, 3201, 80.0, 1)]
assert watch.between(0, 5) == {"samples": 3, "sm_mhz": 1740, "memory_mhz": 3201, "load_watts": 680, "slowed": "power 67 %, heat 33 %"}, watch.between(0, 5)
assert watch.between(20, 30) == {}
watch.samples = [(1.0, 1500, None, None, None)]
assert watch.between(0, 5) == {"samples": 1, "sm_mhz": 1500}
for table, printed in (("", "launched a:conv\n"), ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","Random","Duration","us","1"\n', "launched a:conv\nlaunched b:conv\n")):
    try:
        gpu_counters.ops_of(table, printed, ["a:conv", "b:conv"])
    except ValueError:
        continue
    sys.exit("ops without rows")
PY

# ---- killed in the middle: what was finished counts, what was begun is begun again, and nothing else is done twice
parts=(bench profile counters ops)
rm "$work/calls"
( STUB_HANG=fp16 call "$work/killed" --total 100000 "${parts[@]}" & echo $! >"$work/left.shell"; wait ) &
waiting=$!
for ((i = 0; i < 18000; i++)); do [ ! -e "$work/reached" ] || break; sleep 0.1; done
[ -e "$work/reached" ] || fail "the second profile did not begin: $(cat "$work/run")"
caller=$(awk '/^PPid:/ { print $2 }' "/proc/$(cat "$work/left")/status")
kill -9 "$caller" "$(cat "$work/left")"
wait "$waiting"
json "$work/killed/profile.json" 'len(r) == 1 and list(p["took"]) == ["bf16"]'
json "$work/killed/bench.json" 'p["complete"]'
[ ! -e "$work/killed/counters.json" ] || fail "it went on after its end"
mkdir "$work/unpacked"
tar xf "$work/killed.tar" -C "$work/unpacked" && cmp "$work/unpacked/profile.json" "$work/killed/profile.json" || fail "the packed results are others"
rm "$work/calls" "$work/reached" "$work/left"
call "$work/second" --total 100000 --continue "$work/killed.tar" "${parts[@]}" || fail "the second call: $(cat "$work/run")"
grep -q 'towers .*--profile' "$work/calls" && ! grep 'towers .*--profile' "$work/calls" | grep -v fp16 || fail "the second call did not profile f16 alone: $(cat "$work/calls")"
grep -qE 'kinds=|--batches 150' "$work/calls" && fail "the second call measured again: $(cat "$work/calls")"
[ "$(grep -c launch= "$work/calls")" = 2 ] || fail "the second call left out the counters: $(cat "$work/calls")"
for part in "${parts[@]}"; do
    python3 - "$work/one/$part.json" "$work/second/$part.json" <<'PY' || fail "$part of two calls is not that of one: $(cat "$work/second/$part.json")"
import json, sys
one, two = ([{key: row[key] for key in row if key not in ("samples", "search_seconds", "step")} for row in json.load(open(path))["results"]] for path in sys.argv[1:])
sys.exit(one != two)
PY
done
json "$work/second/profile.json" '"continued" in p'
grep -q ', continued ' "$work/second.md" || fail "the tables do not say that there were two calls"
rm "$work/calls"
call "$work/second" --total 100000 --continue "$work/second" "${parts[@]}" || fail "the third call: $(cat "$work/run")"
[ ! -e "$work/calls" ] || fail "the third call measured what was there: $(cat "$work/calls")"
# results of another GPU or another commit are not continued, nor is nothing
STUB_GPU='Other GPU' call "$work/other" --total 100000 --continue "$work/second" "${parts[@]}" && fail "the results of another GPU were continued"
grep -q 'is of device Stub GPU, this is Other GPU: begin anew' "$work/run" || fail "another GPU: $(cat "$work/run")"
call "$work/other" --total 100000 --continue "$work/without" "${parts[@]}" && fail "nothing was continued"
grep -q 'there are no results in' "$work/run" || fail "nothing: $(cat "$work/run")"

# ---- time that does not suffice: a step whose seconds do not fit is left out, and a shorter one behind it is not; a call that continues
# takes what was cut off or left out
python3 - "$source/scripts" "$work" <<'PY' || fail "the order in which time is spent"
import sys, types
sys.path.insert(0, sys.argv[1])
import gpu_check
now, ran = [0.0], []
gpu_check.time = types.SimpleNamespace(monotonic=lambda: now[0], strftime=lambda _: "now")

def part_of(seconds, earlier, last=False):
    return gpu_check.Part(types.SimpleNamespace(out=sys.argv[2], earlier=earlier, device="G", commit="c", dry_run=False, total=seconds, last_turn=last, pack=None, watch=None), "bench", seconds)

def steps(part, cut=""):
    def work(name, seconds):
        ran.append(name)
        part.add({"row": name})
        now[0] += seconds
        if name == cut:
            part.cut = True
            part.problem("cut off")
    for name, seconds in (("a", 10), ("b", 50), ("c", 20)):
        part.step(name, seconds, work, name, seconds)

first = part_of(40, {})
steps(first)
assert ran == ["a", "c"] and first.result["left_out"] == ["b: no time left for its 50 s"], (ran, first.result)
second = part_of(30, {"bench": first.result}, last=True)  # all that is left: half of what it takes is worth a try
steps(second, cut="b")
assert ran == ["a", "c", "b"] and second.result["unfinished"] == {"b": ["cut off"]} and list(second.result["took"]) == ["a", "c"], second.result
third = part_of(60, {"bench": second.result})
steps(third)
assert ran == ["a", "c", "b", "b"] and [row["row"] for row in third.result["results"]] == ["a", "c", "b"] and not third.result["unfinished"] and not third.result["problems"], third.result
assert not third.result["left_out"] and set(third.result["took"]) == {"a", "b", "c"}
PY

# ---- the two calls of a GPU that is rented for 15 minutes, by a clock that runs as planned: what each of them does
mkdir -p "$work/bundle/data" "$work/bundle/nccl"
touch "$work/bundle/data/train-images-idx3-ubyte" "$work/bundle/nccl/libnccl.so.2"
PATH=$work/bin:$PATH python3 - "$source/scripts" "$work" >"$work/plan" <<'PY' || fail "the plan of two calls: $(cat "$work/plan")"
import os, sys, types
sys.path.insert(0, sys.argv[1])
import gpu_check
now, done = [0.0], []
gpu_check.time = types.SimpleNamespace(monotonic=lambda: now[0], strftime=lambda _: "now")
gpu_check.device_of, gpu_check.commit_now, gpu_check.plans_keep = lambda args: "G", lambda: "c", lambda part: None
gpu_check.gpu_watch.Watch = lambda: types.SimpleNamespace(why="")

class Compiled:  # in time
    def __init__(self, part):
        pass
    def __enter__(self):
        for work in gpu_check_ahead:
            gpu_check.compiled_note(*work)
    def __exit__(self, *_):
        pass
gpu_check_ahead, gpu_check.Ahead, real = gpu_check.Ahead.WORK, Compiled, gpu_check.Part.step

def step(self, key, seconds, work, *words):
    def planned():
        now[0] += seconds
        done.append(f"{self.name}: {key}")
    real(self, key, seconds, planned)
gpu_check.Part.step = step

def call(total, earlier):
    done.clear()
    begun = now[0]
    gpu_check.parts_run(types.SimpleNamespace(build=sys.argv[2] + "/b", data=sys.argv[2] + "/bundle/data", out=sys.argv[2] + "/planned", dry_run=False, total=total, seconds=None, page=None, pack=None,
                                              small=False, earlier_results=earlier, parts=list(gpu_check.PLAN)[:9]))
    print(f"== {total} s, of which {now[0] - begun:.0f} are used", *done, sep="\n", flush=True)
    return list(done)

os.makedirs(sys.argv[2] + "/planned")
first = call(560 - 110 - 5, None)
assert [sum(name.startswith(part + ":") for name in first) for part in ("bench", "nccl", "profile", "counters")] == [4, 19, 2, 2], first
assert {"ops: newest cases", "ops: memcheck conv_dw", "ops: racecheck conv_dw"} <= set(first), first
second = call(150 - 10, sys.argv[2] + "/planned")
assert second[:5] == ["models: resnet50, towers, 256", "models: resnet50, towers, 400", "models: resnet50, PyTorch, 256", "batches: bf16, batch 512", "batches: bf16, batch 128"], second
assert not set(first) & set(second)
assert gpu_check.seconds_planned(None, "bench") == 47 and gpu_check.seconds_planned({"complete": True, "took": {"a": 1}}, "bench") == 0 and gpu_check.seconds_planned({"took": {"a": 20}}, "bench") == 27
PY
sed -n '/^== [0-9]/,/^== [a-z]/{/^== [a-z]/!p}' "$work/plan"

# ---- what is carried to such a machine: of a library the code of one GPU, to the byte where it was
python3 - "$work/library" <<'PY' || fail "no library"
import struct, sys
def entry(kind, arch, code):
    return struct.pack("<HHIQ12xI32x", kind, 257, 64, len(code), arch), code
def container(*entries):
    body = b"".join(head + code for head, code in entries)
    return struct.pack("<4sHHQ", b"\x50\xed\x55\xba", 1, 16, len(body)) + body
with open(sys.argv[1], "wb") as file:
    file.write(b"ELF" + container(entry(2, 80, b"a" * 40), entry(2, 90, b"b" * 24)) + b"\x50\xed\x55\xba no container" + container(entry(1, 120, b"c" * 16)) + b"end")
PY
"$source/scripts/blank_fatbin.py" "$work/library" "$work/library.90" 90 >"$work/left.bytes" || fail "blank_fatbin: $(cat "$work/left.bytes")"
[ "$(cat "$work/left.bytes")" = 24 ] && tr 'ac' '\0\0' <"$work/library" | sed 's/no \x00ont\x00iner/no container/' | cmp - "$work/library.90" || fail "other bytes than the code of other GPUs were changed"
"$source/scripts/blank_fatbin.py" "$work/library" "$work/library.75" 75 2>"$work/run" && fail "a library without code for a GPU was made"
grep -q 'has no code for 75' "$work/run" || fail "no code: $(cat "$work/run")"

# ---- the steps fit their parts: those that a call of 560 s takes, and the first ones of the others
python3 "$source/scripts/gpu_check.py" --build /b --data /d --out "$work/dry" --dry-run bench nccl profile counters >"$work/steps" || fail "the dry run: $(cat "$work/steps")"
awk -v plan="$(python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import gpu_check; print(*(f"{name}={seconds}" for name, seconds in gpu_check.PLAN.items()))' "$source/scripts")" '
    BEGIN { n = split(plan, pairs, " "); for (i = 1; i <= n; i++) { split(pairs[i], pair, "="); seconds[pair[1]] = pair[2] } }
    /^== / { part = $2 }
    /^  .* \([0-9]+ s\)$/ { match($0, /\([0-9]+ s\)$/); sum[part] += substr($0, RSTART + 1) }
    END { for (part in sum) { if (sum[part] > seconds[part]) { print part, sum[part], "s in", seconds[part]; bad = 1 } } exit bad }' "$work/steps" || fail "a part has more than its seconds"
# the ops whose counters are wanted are ops of a step
driver=$(dirname "$2")/tests/ops_driver
if [ -x "$driver" ] && "$2" info fashion_cnn --batch-size 1 >/dev/null 2>&1; then
    names=$(sed -n 's/^  would run: .*launch=//p' "$work/steps" | paste -sd ,)
    "$driver" device=cpu n=1 compute=f32 "launch=$names" >"$work/launched" 2>&1 || fail "no such ops: $(cat "$work/launched")"
    [ "$(grep -c '^launched ' "$work/launched")" = 8 ] || fail "not eight ops: $(cat "$work/launched")"
    "$driver" device=cpu n=1 compute=f32 model=fashion_cnn seconds=0 kinds=conv >"$work/kinds" && grep -q '"ops": 2,' "$work/kinds" || fail "not all convolutions: $(cat "$work/kinds")"
    "$driver" device=cpu n=1 compute=f32 model=fashion_cnn seconds=0 kinds=convolution 2>"$work/kinds" && fail "a kind that does not exist"
fi
echo "ok"
