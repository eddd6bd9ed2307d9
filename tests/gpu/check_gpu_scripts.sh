#!/usr/bin/env bash
# The scripts for machines with a GPU, as far as they run without one: help, errors, the dry run of every part, and the tables made
# from results. usage: check_gpu_scripts.sh SOURCE_FOLDER BINARY
set -uo pipefail
source=$1
work=$(mktemp -d)
trap 'kill $(cat "$work/b/left" 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "SKIPPED: no python3" >&2; exit 77; }

fail() {
    echo "check_gpu_scripts: $*" >&2
    exit 1
}

"$source/scripts/gpu_check.sh" --help | grep -q -- '--only PART' || fail "--help does not name --only"
"$source/scripts/gpu_check.sh" --help | grep -q 'docs/results/gpu.md' || fail "--help ends early"
"$source/scripts/gpu_check.sh" --only nothing 2>"$work/err" && fail "--only nothing was accepted"
grep -q "unknown part 'nothing'" "$work/err" || fail "--only nothing: $(cat "$work/err")"
"$source/scripts/gpu_check.sh" --seconds soon 2>"$work/err" && fail "--seconds soon was accepted"
grep -q "expects a whole number" "$work/err" || fail "--seconds soon: $(cat "$work/err")"
"$source/scripts/gpu_check.sh" --total 20 --out "$work/none" 2>"$work/err" && fail "--total 20 was accepted"
grep -q "expects more than 20 seconds" "$work/err" || fail "--total 20: $(cat "$work/err")"
"$source/scripts/gpu_check.sh" --continue "$work/nowhere" --out "$work/none" 2>"$work/err" && fail "--continue of nothing was accepted"
grep -q "nowhere does not exist" "$work/err" || fail "--continue of nothing: $(cat "$work/err")"

# On a machine with nothing of ours the bundle is enough for the configuration and has all generated code. The compiler's machine has
# more, which CMake is told not to look at; oneDNN is not called.
"$source/scripts/gpu_bundle.sh" "$work/bundle" >"$work/took" 2>&1 || fail "no bundle: $(cat "$work/took")"
"$source/scripts/gpu_bundle.sh" --fewer "$work/bundle" 2>"$work/took" && fail "--fewer was accepted"
if [ -f "$work/bundle/data/train-images-idx3-ubyte.gz" ]; then # few images are images, too
    "$source/scripts/gpu_bundle.sh" --few "$work/few" >"$work/took" 2>&1 || fail "no bundle of few images: $(cat "$work/took")"
    "$2" data info "$work/few/data" >"$work/took" 2>&1 && grep -q '2,\?048' "$work/took" || fail "few images: $(cat "$work/took")"
    [ "$(du -sk "$work/few" | cut -f 1)" -lt $(($(du -sk "$work/bundle" | cut -f 1) - 20000)) ] || fail "few images are not fewer: $(du -sk "$work/few" "$work/bundle")"
fi
mkdir "$work/dnnl"
touch "$work/dnnl/dnnl_version.h"
cmake -S "$source" -B "$work/bundled" -G Ninja "-DCMAKE_MAKE_PROGRAM=$(command -v ninja)" "-DCMAKE_C_COMPILER=$(command -v cc)" \
    "-DCMAKE_PREFIX_PATH=$work/bundle" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
    "-DPKG_CONFIG_EXECUTABLE=$work/bundle/bin/bundle-pkg-config" -DTOWERS_CUDA=OFF -DTOWERS_MPI=OFF -DTOWERS_OPENMP=OFF \
    "-DDNNL_INCLUDE_DIR=$work/dnnl" -DDNNL_LIBRARY=dnnl >"$work/took" 2>&1 || fail "the bundle lacks something: $(cat "$work/took")"
grep -E '^(LAPACK|BLAS|pkgcfg|ZLIB|PROTOC).*=/' "$work/bundled/CMakeCache.txt" | grep -v "=$work/bundle/" && fail "CMake has looked outside of the bundle"
echo 'int main(void) { return 0; }' |
    cc -no-pie -o "$work/whole" -x c - -x none -Wl,--whole-archive "$work"/bundle/lib/*.a -Wl,--no-whole-archive -lm 2>"$work/took" ||
    fail "libraries of the bundle need others: $(tail -n 5 "$work/took")"
cmake --build "$work/bundled" --target towers_proto >"$work/took" 2>&1 || fail "the bundle lacks generated code: $(cat "$work/took")"

# The toolkit that we install is new enough for the fastest sums.
needed=$(sed -n 's/.*library_is(NCCL_VERSION(\([0-9]*\), \([0-9]*\), \([0-9]*\))).*/\1.\2.\3/p' "$source/nccl_sync/comm_nccl_memory.c" | sort -V | tail -n 1)
pinned=$(sed -n 's/.*nvidia-nccl-cu13==\([0-9.]*\).*/\1/p' "$source/scripts/requirements/cuda.txt")
[ "$(printf '%s\n' "$needed" "$pinned" | sort -V | tail -n 1)" = "$pinned" ] || fail "cuda.txt has NCCL $pinned, windows need $needed"

mkdir "$work/out"
python3 "$source/scripts/gpu_check.py" --build /b --data /d --out "$work/out" --dry-run bench nccl ops profile counters models compile batches loss resume model scale >"$work/dry" || fail "the dry run failed"
for word in test_ops memcheck racecheck initcheck gpu_driver 'whole --driver' 'train inception_mini' 'bench inception_v3' 'torch --network inception_v3 --dtype bf16 --batch 256' \
    'torch --network resnet50 --dtype bf16 --batch 400' 'bench resnet50' 'bench efficientnet_lite0' 'loss --driver' '--profile-from-start off' 'kinds=batchnorm,' '-b 512' '-b 64' '-b 128' --profile '--towers 8 ' '--processes 2' '--sdc-check' '--stop-epoch 1' '--amp-dtype tf32' '--processes 8' '--reduce-dtype bf16' '--max-restarts 1' 'newer-5-1' '--bn-stats sync' wgan_gp; do
    grep -q -- "$word" "$work/dry" || fail "the dry run does not mention: $word"
done

[ -z "$(ls "$work/out")" ] || fail "the dry run wrote results"
"$source/scripts/measure/bench_models.sh" --gpu --nothing 2>"$work/err" && fail "bench_models.sh --gpu --nothing was accepted"
grep -q "gpu_check: unknown option '--nothing'" "$work/err" || fail "bench_models.sh --gpu: $(cat "$work/err")"

# What it would run of our program are commands that the program takes: all that is wrong here is that there is no GPU.
sed -n 's|^ *would run: .*/b/towers |towers |p' "$work/dry" | sed "s|/d |$work |" | sort -u >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || fail "few commands in the dry run: $(cat "$work/commands")"
while read -r _ words; do
    (cd "$work" && CUDA_VISIBLE_DEVICES='' eval "'$2' $words" >"$work/took" 2>&1)
    status=$?
    [ $status -eq 5 ] || fail "exit $status, wanted 5, of: towers $words: $(tail -n 3 "$work/took")"
done <"$work/commands"

# Ranks that share one GPU: the whole part, with our program over a stand-in for NCCL. Each row must be as it is wanted; a sum in another
# order, which is the default's no more, is noticed.
gpu_towers=$(dirname "$2")/tests/gpu/fake_cuda/towers_on_fake_gpus
source_dir=$source
. "$source/tests/support/small_data.sh"
if [ -x "$gpu_towers" ] && (cd "$work" && small_data "$work/idx" 256 12); then
    mkdir -p "$work/n/tests"
    printf '#!/bin/sh\necho "Stub GPU"\n' >"$work/n/tests/gpu_driver"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$gpu_towers" >"$work/n/towers"
    printf '#!/bin/sh\nexec "%s" "$@" --reduce fast\n' "$gpu_towers" >"$work/n/otherwise"
    chmod +x "$work/n/towers" "$work/n/otherwise" "$work/n/tests/gpu_driver"
    rehearse_nccl() { # FOLDER SECONDS
        FAKE_GPUS=1 TMPDIR=$work ASAN_OPTIONS=detect_leaks=0 python3 "$source/scripts/gpu_check.py" --build "$work/n" --data "$work/idx" --out "$1" --small --seconds "$2" nccl >"$work/run" 2>&1
    }
    if rehearse_nccl "$work/nccl" 900; then
        [ "$(grep -c '"right": "yes"' "$work/nccl/nccl.json")" = 14 ] || fail "part nccl has not all rows: $(cat "$work/nccl/nccl.json")"
        grep -q '"right": "left out: there is none' "$work/nccl/nccl.json" || fail "a newer NCCL is not left out by name"
        python3 "$source/scripts/pages/gpu_tables.py" "$work/nccl" "$work/nccl.md" || fail "no table of part nccl"
        grep -q '| in tower order | 8 | yes |' "$work/nccl.md" || fail "the table of part nccl: $(cat "$work/nccl.md")"
        mv "$work/n/otherwise" "$work/n/towers"
        rehearse_nccl "$work/otherwise" 40 && fail "sums in another order pass"
        grep -q 'in tower order, 4 ranks: other weights than in one process' "$work/run" || fail "sums in another order: $(cat "$work/run")"
    elif TOWERS_FAULT=none: "$gpu_towers" train fashion_cnn --device cuda --dry-run --data-path "$work/idx" >/dev/null 2>&1; then
        echo "SKIPPED: part nccl of gpu_check: this build has no fault points" >&2
    else
        fail "part nccl: $(cat "$work/run")"
    fi
fi

# Programs that stand in for those of a build: cases of which one breaks the device, a bench that hangs with a child of its own, and
# one in a session of its own, which keeps the pipes.
mkdir -p "$work/b/tests" "$work/results"
cat >"$work/b/tests/gpu_driver" <<'STUB'
#!/bin/sh
case $1 in json) echo 'no JSON' ;; memory) echo 4e12 ;; *) echo "Stub GPU" ;; esac
STUB
cat >"$work/b/tests/test_ops" <<'STUB'
#!/bin/sh
echo "  cuda f32  conv               3 rows    9 runs  max error 1.00e-06 (  5 % of allowed)"
case ,$TOWERS_TEST_NOT, in *,pool,*) echo "  cuda f32  relu               1 rows    2 runs  max error nan (nan % of allowed)" && exit 1 ;; esac
echo "the device is lost after pool in f32: bad address" >&2
exit 1
STUB
cat >"$work/b/towers" <<'STUB'
#!/bin/sh
echo "| early | line |"
sleep 900 &
setsid sleep 400 &
echo $! >>"${0%/*}/left"
sleep 900
STUB
chmod +x "$work/b/towers" "$work"/b/tests/*
begun=$SECONDS
PATH=/usr/bin:/bin python3 "$source/scripts/gpu_check.py" --build "$work/b" --data /d --out "$work/results" --seconds 3 profile >"$work/run" && fail "a run with problems ended well"
[ $((SECONDS - begun)) -lt 350 ] || fail "a program that hangs was not cut off, or its child not: $(cat "$work/run")"
grep -q 'cut off after' "$work/run" && grep -q 'early | line' "$work/results/profile.json" || fail "what was printed before the cut is lost: $(cat "$work/run")"
mkdir -p "$work/odd/towers/plans/folder.txt" # plans that cannot be kept
XDG_CACHE_HOME=$work/odd python3 "$source/scripts/gpu_check.py" --build "$work/b" --data /d --out "$work/results" --seconds 3 ops profile >"$work/run"
for word in 'the script itself failed' '== profile'; do grep -q "$word" "$work/run" || fail "lacks '$word': $(cat "$work/run")"; done
sed -i 's/no JSON/{}/' "$work/b/tests/gpu_driver"
python3 "$source/scripts/gpu_check.py" --build "$work/b" --data /d --out "$work/results" --seconds 20 ops >"$work/run"
for word in 'pool in f32 breaks the device' 'op relu' 'op conv'; do grep -q "$word" "$work/run" || fail "lacks '$word': $(cat "$work/run")"; done
grep -q '"passed": "no"' "$work/results/ops.json" || fail "ops passed"
# A sanitizer that was cut off is neither clean nor unclean.
printf '#!/bin/sh\nsleep 900\n' >"$work/b/compute-sanitizer"
chmod +x "$work/b/compute-sanitizer"
PATH=$work/b:/usr/bin:/bin python3 "$source/scripts/gpu_check.py" --build "$work/b" --data /d --out "$work/results" --seconds 10 ops >"$work/run"
grep -q '"clean": "cut off"' "$work/results/ops.json" || fail "a sanitizer was cut off: $(cat "$work/results/ops.json")"
# The whole script in a world where everything is slow: it ends in time when the build does not, which the next call continues; then
# the budget is kept, every part says what it lacks, and there are tables. Another machine continues with the plans that were found.
mkdir -p "$work/slow" "$work/without"
echo 'raise ImportError("no PyTorch in this test")' >"$work/without/torch.py" # whose start may take long
export PYTHONPATH=$work/without
cat >"$work/slow/cmake" <<'STUB'
#!/bin/sh
[ "$1" = --build ] || echo "$*" >"$STUB_BUILT.asked"
[ -e "$STUB_BUILT" ] || { [ "$1" = --build ] && sleep 900 || sleep 4; }
STUB
cat >"$work/b/towers" <<'STUB'
#!/bin/sh
plans=$XDG_CACHE_HOME/towers/plans/A_GPU.txt
[ -e "$STUB_FAST" ] && [ -e "$plans" ] && echo '{"images_per_sec": 100}' && exit
mkdir -p "${plans%/*}"
printf 'task\tplan\t1.0\n' >"$plans"
sleep 900
STUB
printf '#!/bin/sh\nprintf "9.0\\n8.9\\n8.0\\n"\n' >"$work/slow/nvidia-smi"
chmod +x "$work/slow/cmake" "$work/slow/nvidia-smi" "$work/b/towers"
rehearse() { # SECONDS ARGUMENT...: one call, within this time
    local begun=$SECONDS
    env -u XDG_CACHE_HOME PATH="$work/slow:/usr/bin:/bin" STUB_BUILT="$work/built" STUB_FAST="$work/fast" TOWERS_GPU_BUILD="$work/b" \
        OUT="$work/total" "$source/scripts/gpu_check.sh" "${@:2}" >"$work/run" 2>&1 && fail "a run with problems ended well"
    [ $((SECONDS - begun)) -lt "$1" ] || fail "gpu_check.sh ${*:2} took $((SECONDS - begun)) s: $(cat "$work/run")"
}
rehearse 20 --total 30 # which the configuration and the build share
grep -q 'ARCHITECTURES=80;90' "$work/built.asked" || fail "the build is not for the GPUs that are here: $(cat "$work/built.asked")"
grep -q 'the build was cut off after .* the next call continues it' "$work/run" || fail "a slow build: $(cat "$work/run")"
touch "$work/built"
rm "$work/slow/nvidia-smi"
rehearse 300 --total 110
[ "$(ls "$work/total")" = "$(printf 'build.log\nresults.tar')" ] || fail "more files than two are in $OUT: $(ls "$work/total")"
unpack() {
    rm -rf "$work/unpacked"
    mkdir "$work/unpacked"
    tar xf "$work/total/results.tar" -C "$work/unpacked" || fail "the results are not packed"
}
unpack
for part in bench nccl ops profile counters models compile batches loss; do
    grep -q -E 'cut off after|no time left|breaks the device|no Fashion-MNIST|ncu. was not found' "$work/unpacked/$part.json" || fail "$part does not say what it lacks: $(cat "$work/unpacked/$part.json")"
done
grep -q 'Operations against the reference' "$work/unpacked/gpu.md" || fail "no tables: $(cat "$work/unpacked/gpu.md")"
grep -q '"found": "cut off"' "$work/unpacked/bench.json" || fail "the search for plans was not cut off: $(cat "$work/unpacked/bench.json")"
rm -r "$work/b/cache"
touch "$work/fast"
cp "$work/total/results.tar" "$work/first.tar"
rehearse 100 --total 60 --only bench --continue "$work/first.tar"
unpack
for word in '"found": "yes"' '"system": "towers"'; do grep -q "$word" "$work/unpacked/bench.json" || fail "the second call lacks '$word': $(cat "$work/unpacked/bench.json")"; done
grep -q '"found": "cut off"' "$work/unpacked/bench.json" && fail "a search that was cut off is kept: $(cat "$work/unpacked/bench.json")"

# The device memory of a run is compared with its memory.json; two GPUs scale to two towers; plans are found beforehand.
cat >"$work/b/nvidia-smi" <<'STUB'
#!/bin/sh
case $1 in -L) printf 'GPU 0: Stub (UUID: a)\nGPU 1: Stub (UUID: b)\n' ;; *) [ -e "$STUB_BUSY" ] && touch "$STUB_BUSY.seen" && echo 9500 || echo 500 ;; esac
STUB
cat >"$work/b/towers" <<'STUB'
#!/bin/sh
echo "$*" >>"$STUB_CALLS"
case " $* " in *' --towers 2 '*) speed=190 ;; *) speed=100 ;; esac
case " $* " in *' --warmup-batches 8 '*)
    touch "$STUB_BUSY"
    sleep 0.6
    [ ! -e "$STUB_BUSY.seen" ] || echo "watched while it was timed: $*" >>"$STUB_CALLS"
    rm -f "$STUB_BUSY" "$STUB_BUSY.seen"
    ;;
esac
case " $* " in *' --sdc-check '* | *' --towers 1 '*) ;; *' --output-dir '*) watched=yes ;; esac
case " $* " in *' --resume '*) resumed=yes ;; esac
while [ $# -gt 0 ]; do [ "$1" = --output-dir ] && runs=$2; shift; done
[ -z "$runs" ] || { mkdir -p "$runs/run" && echo '{"weights": 1, "in all": 1048576}' >"$runs/run/memory.json"; }
case "$resumed$STUB_OTHER" in yesyes) echo other ;; *) echo same ;; esac >"${runs:-$STUB_SCRATCH}/run/last.safetensors"
touch "$STUB_BUSY"
tries=0
while [ -n "$watched" ] && [ ! -e "$STUB_BUSY.seen" ] && [ $tries -lt 30000 ]; do sleep 0.01; tries=$((tries + 1)); done
rm -f "$STUB_BUSY" "$STUB_BUSY.seen"
echo "{\"images_per_sec\": $speed, \"test_accuracy\": 0.9}"
STUB
chmod +x "$work/b/nvidia-smi" "$work/b/towers"
mkdir "$work/d"
touch "$work/d/train-images-idx3-ubyte"
mkdir -p "$work/none/run"
export STUB_BUSY=$work/busy STUB_CALLS=$work/calls STUB_SCRATCH=$work/none
PATH=$work/b:/usr/bin:/bin python3 "$source/scripts/gpu_check.py" --build "$work/b" --data "$work/d" --out "$work/results" --seconds 60 scale model >"$work/run"
for word in '"efficiency": 0.95' '"skipped": "2 GPUs here"' '"trained": 2'; do grep -q "$word" "$work/results/scale.json" || fail "lacks '$word': $(cat "$work/results/scale.json")"; done
head -n 1 "$work/calls" | grep -q -- '--warmup-batches 0 --batches 1' || fail "the plans are not found first: $(head -n 1 "$work/calls")"
for word in '"memory_mib": 9000' '"planned_mib": 1' 'takes 9000 MiB of the device, memory.json says 1'; do
    grep -q "$word" "$work/results/model.json" || fail "lacks '$word': $(cat "$work/results/model.json")"
done
for other in no yes; do # the weights of a run that goes on
    STUB_OTHER=$other PATH=$work/b:/usr/bin:/bin python3 "$source/scripts/gpu_check.py" --build "$work/b" --data "$work/d" --out "$work/results" --seconds 60 resume >"$work/run"
    [ "$(grep -c "\"same_bits\": \"$([ $other = yes ] && echo no || echo yes)\"" "$work/results/resume.json")" = 2 ] || fail "other weights: $other, but: $(cat "$work/results/resume.json")"
done
grep -q 'has other weights' "$work/run" || fail "other weights are no problem: $(cat "$work/run")"
PATH=$work/b:/usr/bin:/bin python3 "$source/scripts/gpu_check.py" --build "$work/b" --data "$work/d" --out "$work/results" --seconds 60 bench >"$work/run"
grep -q '"system": "towers"' "$work/results/bench.json" || fail "no speed: $(cat "$work/results/bench.json")"
grep 'watched while it was timed' "$work/calls" && fail "the driver is asked for memory during a run that is timed"
python3 "$source/scripts/pages/gpu_tables.py" "$work/results" "$work/doc0.md" || fail "no tables of the stubs' results"

cat >"$work/out/bench.json" <<'JSON'
{"part": "bench", "device": "G", "started": "now", "problems": ["cut off"], "left_out": ["no time left for: a"], "results": [
 {"system": "towers", "type": "bf16", "batch": 256, "images_per_second": 300.0, "watts": 650.4}, {"system": "towers", "type": "bf16", "batch": 256, "images_per_second": 100.0},
 {"system": "towers", "type": "bf16", "batch": 256, "images_per_second": 200.0}, {"system": "pytorch 2.1 eager", "type": "bf16", "batch": 256, "images_per_second": 100.0},
 {"system": "towers", "type": "f16", "batch": 256, "images_per_second": 2500.0}, {"system": "pytorch 2.1 eager", "type": "f16", "batch": 256, "images_per_second": 1000.0}]}
JSON
cat >"$work/out/compile.json" <<'JSON'
{"part": "compile", "device": "G", "commit": "c0ffee1+", "started": "now", "problems": [], "results": [
 {"system": "towers", "type": "bf16", "batch": 256, "images_per_second": 210.0}, {"system": "pytorch 2.1 compile", "type": "bf16", "batch": 256, "images_per_second": 140.0}]}
JSON
cat >"$work/out/ops.json" <<'JSON'
{"part": "ops", "device": "G", "started": "now", "problems": [], "passed": "no", "results": [
 {"dtype": "f16", "op": "conv", "rows": 1, "runs": 2, "max_error": 0.001, "percent_of_allowed": 50, "unsupported": 0}, {"tool": "memcheck", "op": "a training step", "clean": "no"},
 {"tool": "memcheck", "op": "conv_dw", "clean": "cut off"}]}
JSON
cat >"$work/out/model.json" <<'JSON'
{"part": "model", "device": "G", "started": "now", "problems": [], "results": [
 {"whole": "inception_v3, 299x299, f32, 1 step", "group": "gradients", "tensors": 292, "error": 0.0001, "pytorch_error": 0.0001, "median_ratio": 1.0, "right": false, "pytorch_wrong": {"channels_last": 0.3}},
 {"whole": "inception_v3, 299x299, bf16, 1 step", "group": "gradients", "tensors": 292, "error": 0.6, "pytorch_error": 1.1, "median_ratio": 0.4, "right": true},
 {"model": "inception_mini", "type": "f32", "epochs": 2, "test_accuracy": 0.9, "seconds": 9}]}
JSON
cat >"$work/out/scale.json" <<'JSON'
{"part": "scale", "device": "G", "started": "now", "problems": [], "gpus": 2, "results": [
 {"plans": "bf16", "batch": 256, "search_seconds": 100.0, "found": "yes", "memory_mib": 9000},
 {"scale": 2, "type": "bf16", "images_per_second": 1900.0, "efficiency": 0.95}, {"scale": 4, "type": "bf16", "skipped": "2 GPUs here"}, {"trained": 2, "test_accuracy": 0.9}]}
JSON
cat >"$work/out/models.json" <<'JSON'
{"part": "models", "device": "G", "started": "now", "continued": "later", "problems": [], "unfinished": {"x": ["cut off after 3 s"]}, "left_out": ["resnet18: no time"], "results": [
 {"network": "resnet50", "system": "towers", "type": "bf16", "batch": 400, "images_per_second": 6000.0, "sm_mhz": 1700, "load_watts": 690, "slowed": "power 90 %"},
 {"network": "resnet50", "system": "towers", "type": "bf16", "batch": 400, "images_per_second": 6000.0, "sm_mhz": 1755, "load_watts": 688, "slowed": "no"},
 {"network": "resnet50", "system": "pytorch 2.1 compile", "type": "bf16", "batch": 400, "images_per_second": 3000.0},
 {"network": "mobilenet_v3_small", "system": "towers", "type": "bf16", "batch": 256, "images_per_second": 9000.0}]}
JSON
cat >"$work/out/loss.json" <<'JSON'
{"part": "loss", "device": "G", "started": "now", "problems": [], "results": [{"loss_in": "f16", "batches": 10, "error": 6e-05, "pytorch_error": 2e-05, "ours": [6e-05, 9e-05], "theirs": [2e-05, 4e-05], "right": false}]}
JSON
cat >"$work/out/profile.json" <<'JSON'
{"part": "profile", "device": "G", "started": "now", "problems": [], "results": [{"type": "bf16", "text": "| op | calls |"}]}
JSON
echo "# Performance" >"$work/doc.md"
echo "kept" >>"$work/doc.md"
for _ in 1 2; do python3 "$source/scripts/pages/gpu_tables.py" "$work/out" "$work/doc.md" || fail "the tables failed"; done
[ "$(grep -cx '## inception_v3, training' "$work/doc.md")" -eq 1 ] || fail "tables made twice are there twice"
for line in '| resnet50 | 400 | bf16 | towers | 6,000 | 6,000, 6,000 |  | 1,700 to 1,755 | 688 to 690 | power 90 %; no |' '| resnet50 | 400 | bf16 | pytorch 2.1 compile | 3,000 | 3,000 | 2.00 |  |  |  |' \
    '| mobilenet_v3_small | 256 | bf16 | towers | 9,000 | 9,000 |  |  |  |  |' 'is 7,940 images/s a GPU' 'continued later. There was no time for 1 more' '- problem: cut off after 3 s' \
    '| f16 | 10 | 6.0e-05 | 2.0e-05 | 9.0e-05 | 4.0e-05 | \*\*no\*\* |' kept '| 256 | bf16 | towers | 200 | 300, 100, 200 |  | 650 |' '| 256 | bf16 | pytorch 2.1 eager | 100 | 100 | 2.00 |  |' 'no time for 1 more' 'All passed: \*\*no\*\*' 'a training step | \*\*no\*\*' 'conv_dw | \*\*cut off\*\*' '| bf16 | 2 | 1,900 | 0.95 |' '| bf16 | 4 | 2 GPUs here |  |' '| 2 | 0.9 |' \
    'gradients | 292 | 1.0e-04 | 1.0e-04 | 1.0 | \*\*no\*\*' '0.4 | no verdict' '- inception_v3, 299x299, f32, 1 step, gradients: channels_last, 3.0e-01' '| 256 | bf16 | pytorch 2.1 compile | 140 | 140 | 1.50 |' '| f32 | 2 | 0.9 | 9 |' '- problem: cut off' '| op | calls |' '^G; commit c0ffee1+, now' '^G; now'; do
    grep -q -- "$line" "$work/doc.md" || fail "the tables lack: $line in $(cat "$work/doc.md")"
done
python3 "$source/scripts/pages/gpu_tables.py" --line "$work/out" >"$work/line" || fail "no sentence"
grep -q 'at 210 images/s in bf16 (batch 256), 1.5 times what PyTorch 2.1 trains there with its compiler, at commit c0ffee1+' "$work/line" || fail "the sentence: $(cat "$work/line")"
# A layout in which PyTorch itself is wrong is no measure of its rounding.
python3 - "$source/scripts" >"$work/rows" <<'PY' || fail "the rows of a network"
import sys, types
sys.path.insert(0, sys.argv[1])
sys.modules["fidelity"] = types.SimpleNamespace(error=lambda have, wanted: float(abs(have - wanted)), vanishing=lambda double: set())
import gpu_check
double = {f"grad.{k}": 1.0 for k in range(4)}
near, far = ({name: value + distance for name, value in double.items()} for distance in (1e-5, 0.5))
groups = [("gradients", "grad."), ("logits", "logits")]
for title, ours, theirs in (("both near", near, near), ("one wrong", near, far), ("ours wrong", far, far)):
    gpu_check.whole_rows(title, groups[:1], ours, [near, theirs], double, gpu_check.layouts_wrong(groups, [near, theirs], double))
PY
for line in '"both near".*"right": true}' '"one wrong".*"pytorch_error": 1e-05,.*"right": true, "pytorch_wrong": {"channels_last": 0.5}' '"ours wrong".*"right": false'; do
    grep -q "$line" "$work/rows" || fail "the rows lack $line: $(cat "$work/rows")"
done
# A loss is wrong if its typical error is more than twice PyTorch's, not if one batch is unlucky.
python3 - "$source/scripts" <<'PY' || fail "the verdict on ten losses"
import sys
sys.path.insert(0, sys.argv[1])
import gpu_check
lucky = [(2e-5, 2e-5)] * 9 + [(9e-5, 1e-6)]
assert gpu_check.loss_row("f16", lucky)["right"] and not gpu_check.loss_row("f16", [(5e-5, 2e-5)] * 10)["right"]
PY
# What the README says is what was measured.
python3 "$source/scripts/pages/gpu_tables.py" --line "$source/docs/results/gpu" >"$work/line" && grep -qxF "$(cat "$work/line")" "$source/README.md" || fail "the README lacks: $(cat "$work/line")"
echo "ok"
