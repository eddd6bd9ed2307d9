#!/usr/bin/env bash
# On which cores processes run that drive GPUs: two fake GPUs with a core each in a made-up /sys. towers doctor shows them; training
# uses them, with all threads; a cpuset without them, an unknown memory node, a damaged list, more threads than cores, and
# --no-cpu-affinity leave the process where it is.
. "$1/tests/support/check.sh"
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
[[ -x $gpu_towers ]] || { echo "SKIPPED: this build has no CUDA backend" >&2; exit 77; }
all=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
read -r a b _ <<<"$(tr ',' '\n' <<<"$all" | awk -F- '{ for (c = $1; c <= ($2 == "" ? $1 : $2); c++) printf "%s ", c }')"
[[ -n $b ]] || { echo "SKIPPED: there is one core" >&2; exit 77; }
small_data "$work/data" 64 12 || exit $?
export TMPDIR=$work XDG_CACHE_HOME=$work/cache ASAN_OPTIONS=detect_leaks=0 FAKE_GPUS=2 FAKE_SYSTEM=$work/system
training=(train fashion_cnn --towers 2 --batch-size 1 --eval-interval 0 --log-interval 1 --summary-interval 0 --reduce ordered
    --data-path "$work/data" --output-dir "$work" --comm-timeout 120)

# near GPU NODE LIST
near() {
    local folder=$work/system/sys/bus/pci/devices/0000:3$1:00.0
    mkdir -p "$folder"
    echo "$2" >"$folder/numa_node"
    echo "$3" >"$folder/local_cpulist"
}
near b 0 "$a"
near c 1 "$b"

# places NAME WANTED ARGUMENT...: the cores of the two processes in training, of all of their threads, and of the program
places() {
    local name=$1 wanted=$2 child found=
    "$gpu_towers" "${training[@]}" --experiment "$name" --max-steps 100000 "${@:3}" >"$out" 2>"$err" </dev/null &
    until [[ -s $work/$name/metrics.jsonl ]] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
    for child in $(tr ' ' '\n' <"/proc/$!/task/$!/children" | sort -n); do
        found+="$(awk '/^Cpus_allowed_list/ { print $2 }' "/proc/$child"/task/*/status | sort -u | tr '\n' ' ')"
    done
    [[ $(awk '/^Cpus_allowed_list/ { print $2 }' "/proc/$!/status") == "${own:-$all}" ]] || complain "$name: the program has moved, too"
    kill $!
    wait $!
    [[ $found == "$wanted " ]] || complain "$name: cores '$found', expected '$wanted': $(tail -n 5 "$err")"
}

places near "$a $b" --workers 0
places off "$all $all" --workers 0 --no-cpu-affinity
places crowded "$all $all" --workers 1
near b -1 "$a"
near c 1 "$b-"
places unknown "$all $all" --workers 0
near b 0 "$a,$b"
near c 1 1023
"$gpu_towers" doctor >"$out" 2>"$err" || complain "doctor: $(cat "$out" "$err")"
grep -qx "ok       gpu cores      0: $a,$b on memory node 0, of which this process may use 2" "$out" || complain "doctor, both: $(cat "$out")"
grep -A 1 'gpu cores      1: 1023 on memory node 1, of which this process may use 0' "$out" | grep -q 'docker run --cpuset-cpus' ||
    complain "doctor, none: $(cat "$out")"
rm -r "$work/system"
"$gpu_towers" doctor >"$out" 2>"$err" || complain "doctor: $(cat "$out" "$err")"
grep -q 'gpu cores      0: unknown, as is the memory node of 0000:3b:00.0' "$out" || complain "doctor, unknown: $(cat "$out")"
near b 0 "$a"
near c 1 "$b"
"$gpu_towers" train fashion_cnn --device cpu --cpu-affinity --dry-run --data-path "$work/data" >"$out" 2>"$err"
[[ $? == 2 ]] && grep -q -- '--cpu-affinity' "$err" || complain "--cpu-affinity on a CPU: $(cat "$err")"
own=$a training=(-c "$a" "$gpu_towers" "${training[@]}") gpu_towers=taskset
places cpuset "$a $a" --workers 0
check_end "processes run on the cores near their GPUs, where these are known, allowed and enough"
