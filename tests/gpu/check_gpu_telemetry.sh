#!/usr/bin/env bash
# What GPUs say about themselves by NVML, over fake GPUs and a fake library of the driver: the records, the reason why a tower is slow,
# images per joule; drivers that lack functions, forbid or do not answer; errors that end a run by name. Only the supervisor asks.
# fault: F57
. "$1/tests/support/check.sh"
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
[[ -x $gpu_towers ]] || { echo "SKIPPED: this build has no CUDA backend" >&2; exit 77; }
small_data "$work/data" 64 12 || exit $?
libraries=$(dirname "$towers")/tests/gpu/fake_nvml
export TMPDIR=$work XDG_CACHE_HOME=$work/cache ASAN_OPTIONS=detect_leaks=0 FAKE_GPUS=2 FAKE_NVML_LOG=$work/nvml.log
export LD_LIBRARY_PATH=$libraries/new
options=(fashion_cnn --workers 1 --towers 2 --batch-size 1 --reduce ordered)
training=(train "${options[@]}" --data-path "$work/data" --eval-interval 0 --log-interval 1 --output-dir "$work" --comm-timeout 120)

# run NAME CODE ARGUMENT...: a run that ends with this code
run() {
    "$gpu_towers" "${training[@]}" --summary-interval "${summaries:-0}" --experiment "$1" "${@:3}" >"$out" 2>"$err" </dev/null
    local code=$?
    [[ $code == "$2" ]] || complain "$1: exit $code instead of $2: $(tail -n 20 "$err")"
}
says() { grep -qE -- "$2" "$err" || complain "$1: nobody says '$2': $(tail -n 20 "$err")"; }
column() { grep -oE "\"$2\":\[[^]]*\]" "$work/$1/metrics.jsonl" | tail -n 1; }
has() { # NAME COLUMN VALUES
    [[ $(column "$1" "$2") == "\"$2\":[$3]" ]] || complain "$1: $2 is '$(column "$1" "$2")', not [$3]"
}
short=(--max-steps 3)
forever=(--epochs 100000)

# run_until NAME COMMAND: a run that is stopped when the command succeeds, which it does within a minute; then that it goes on until
# then, and ends as it should. Steps take as long as this machine likes, GPUs are read every second.
run_until() {
    rm -f "$work/nvml.log"
    "$gpu_towers" "${training[@]}" --summary-interval 0 --experiment "$1" "${forever[@]}" >"$out" 2>"$err" </dev/null &
    local run=$! code=0 i
    for ((i = 0; i < 1500; i++)); do
        ! $2 || break
        kill -0 $run 2>/dev/null || break
        sleep 0.2
    done
    $2 || complain "$1: '$2' never comes true"
    kill $run 2>/dev/null
    wait $run || code=$?
    [[ $code == 143 ]] || complain "$1: exit $code instead of 143: $(tail -n 20 "$err")"
}
# that of so many GPUs, and what there is to hear behind it
third_reading() { [[ $(grep -c later "$work/nvml.log") -ge $1 ]] && sleep 1.2; } 2>/dev/null

# ---- the records; the weights are those of a run that is not watched
summaries=1 run watched 0 "${short[@]}"
has watched gpu_watts 300.5,301.5
has watched gpu_celsius 60,60
has watched gpu_mhz 1980,1980
has watched gpu_mhz_most 1980,1980
has watched gpu_memory_mhz 2619,2619
has watched gpu_memory_bytes 1073741824,1073741824
has watched gpu_busy 97,97
has watched gpu_memory_busy 41,41
has watched gpu_slowed 0,0
has watched gpu_ecc_corrected 5,5
has watched gpu_ecc_uncorrected 2,2
has watched gpu_pcie_replays 6,6
has watched gpu_nvlink_errors 7,7
column watched gpu_joules | grep -qE '\[[0-9.e-]+,[0-9.e-]+\]' || complain "watched: $(column watched gpu_joules)"
grep -qa 'tower_1/gpu_watts' "$work"/watched/events.* || complain "watched: no scalar of TensorBoard"
begun_in=$(grep -v later "$work/nvml.log" | sort -u | wc -l)
[[ $begun_in == 1 ]] || complain "watched: NVML was begun in $begun_in processes"

unwatched() { # NAME TEXT
    run "$1" 0 "${short[@]}"
    says "$1" "GPUs are not watched: $2"
    ! grep -q gpu_ "$work/$1/metrics.jsonl" || complain "$1: telemetry that nobody knows"
    cmp "$work/watched/last.safetensors" "$work/$1/last.safetensors" || complain "$1: other weights"
}
LD_LIBRARY_PATH='' unwatched missing 'libnvidia-ml\.so\.1|NVML.s search'
LD_LIBRARY_PATH=$libraries/ancient unwatched ancient 'libnvidia-ml.so.1 has no nvmlDeviceGetHandleByUUID: update the driver'
FAKE_NVML=permission unwatched permission 'nvmlInit: Insufficient Permissions \(NVML 4\)'
LD_LIBRARY_PATH=$libraries/old FAKE_NVML="slow:1 bare:0" run old 0 "${short[@]}"
has old gpu_celsius 61,88
has old gpu_slowed null,32
has old gpu_ecc_uncorrected null,2
has old gpu_nvlink_errors null,7
column old gpu_joules | grep -qE '\[[0-9.e-]+,[0-9.e-]+\]' || complain "old: $(column old gpu_joules)"

# ---- a slice of a GPU in MIG mode: its own memory, the temperature and clocks of the GPU, and no power, use or ECC errors of all slices
FAKE_NVML="mig:0 slow:0" run slice 0 "${short[@]}"
has slice gpu_memory_bytes 536870912,1073741824
has slice gpu_mhz 1215,1980
has slice gpu_celsius 88,60
has slice gpu_ecc_corrected null,5
has slice gpu_ecc_uncorrected null,2
has slice gpu_watts null,301.5
has slice gpu_busy null,97

# ---- images per joule: two GPUs of 200 W
for batches in 60 300 1500; do # which takes time for two readings
    "$gpu_towers" bench "${options[@]}" --json --warmup-batches 1 --batches $batches >"$out" 2>"$err" || complain "bench: $(tail -n 5 "$err")"
    ! grep -q '"watts"' "$out" || break
done
awk -F'[:,]' '{ for (i = 1; i < NF; i++) v[$i] = $(i + 1) }
    END { w = v["\"watts\""]; j = v["\"images_per_joule\""]; exit !(w > 392 && w < 408 && j * w > 0.999 * v["\"images_per_sec\""] && j * w < 1.001 * v["\"images_per_sec\""]) }' \
    <(tr -d '{} ' <"$out") || complain "bench: $(cat "$out")"

# ---- several programs: rank 0 records the GPUs of all
export TOWERS_WORLD_SIZE=2 TOWERS_MASTER_ADDR=localhost TOWERS_MASTER_PORT=$((16000 + RANDOM % 1500)) FAKE_GPUS=1
TOWERS_RANK=1 NCCL_HOSTID=b FAKE_NVML=slow:0 "$gpu_towers" "${training[@]}" --summary-interval 0 --experiment hosts "${forever[@]}" \
    >/dev/null 2>"$work/err-1" </dev/null &
other=$!
reading_of_both() { column hosts gpu_mhz | grep -q '\[[0-9]*,[0-9]*\]'; } 2>/dev/null
TOWERS_RANK=0 NCCL_HOSTID=a run_until hosts reading_of_both
wait $other
[[ $? == 143 ]] || complain "hosts: rank 1: $(tail -n 5 "$work/err-1")"
has hosts gpu_mhz 1980,1215
unset TOWERS_WORLD_SIZE TOWERS_MASTER_ADDR TOWERS_MASTER_PORT
export FAKE_GPUS=2

# ---- errors that end the run, and one that does not
FAKE_NVML=ecc:1 run ecc 5 "${forever[@]}"
says ecc 'tower 1 \(process 1\), step [0-9]+, activity [a-z-]+.*: GPU-[0-9a-f-]{36}: its memory has lost data: 1 ECC error'
FAKE_NVML=lost:0 run lost 5 "${forever[@]}"
says lost 'tower 0 \(process 0\).*: GPU-[0-9a-f-]{36}: GPU is lost \(NVML 15\)'
FAKE_NVML_BEHIND=$work/xid/ckpt/latest FAKE_NVML=xid:1=79 run xid 5 "${forever[@]}" --checkpoint-steps 1 --max-restarts 1
says xid 'XID 79: it has fallen off the bus.*restart 1 of 1'
says xid 'tower 1 \(process 1\).*: GPU-[0-9a-f-]{36} reports XID 79: it has fallen off the bus.*\(after 1 restarts'
FAKE_NVML=xid:1=167 run unknown 5 "${forever[@]}"
says unknown 'reports XID 167: see NVIDIA'
FAKE_NVML="xid:1=31 mute" run_until mute 'third_reading 2'
both_warn() { [[ $(grep -c 'warning: .* reports XID' "$err") == 2 && $(grep -c gpu_watts "$work/other/metrics.jsonl") -ge 2 ]]; } 2>/dev/null
FAKE_NVML="xid:0=121 xid:1=31" run_until other both_warn
for plot in power temperature clock utilization memory; do
    grep -q "<h3>GPU $plot" "$work/other/report.html" || complain "other: the report has no plot of the GPUs' $plot"
done
says other "warning: process 1: GPU-[0-9a-f-]{36} reports XID 31: a program's kernel used memory that is not its own"
says other "warning: process 0: GPU-[0-9a-f-]{36} reports XID 121: see NVIDIA"
FAKE_NVML="mig:1 xid:1=79" run own 5 "${forever[@]}"
says own 'tower 1 .*: MIG-[0-9a-f-]{36} reports XID 79'
FAKE_NVML="mig:1 other:1=79 ecc:1" run_until neighbor 'third_reading 2'
FAKE_NVML=hang:0 run_until hang 'third_reading 1'

# ---- why a tower is slow
if ! TOWERS_FAULT=none: "$gpu_towers" "${training[@]}" --dry-run >/dev/null 2>&1; then
    for ms in 100 600; do # on a busy machine a short delay is not noticed
        rm -rf "$work/slow"
        TOWERS_FAULT=delay:tower=1,step=1,ms=$ms,activity=forward FAKE_NVML=slow:1 "$gpu_towers" "${training[@]}" --summary-interval 0 \
            --experiment slow "${forever[@]}" >"$out" 2>"$err" </dev/null &
        for ((i = 0; i < 600; i++)); do
            grep -q ' is slow in ' "$err" && break
            kill -0 $! 2>/dev/null || break
            sleep 0.2
        done
        kill $! 2>/dev/null
        wait $!
        grep -q ' is slow in ' "$err" && break
    done
    says slow 'tower 1 is slow in forward: .*; all towers wait for it; its GPU runs at 1215 of 1980 MHz, thermal slowdown, 88 C'
else
    left_out "why a tower is slow: this binary has no fault points"
fi
check_end "GPUs' telemetry in the records, named errors, images per joule; a driver that says nothing changes nothing"
