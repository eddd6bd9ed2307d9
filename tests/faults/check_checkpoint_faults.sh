#!/usr/bin/env bash
# Storage faults during a checkpoint: a save is killed at every system call that touches files, each of these calls fails in turn, the
# disk is full, files are truncated and bits flipped. After each, the newest checkpoint must load completely or be rejected by name; a
# save that failed must have reported it.
# usage: check_checkpoint_faults.sh SOURCE_DIR TOWERS_BINARY
set -u
export LC_ALL=C ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" # the leak checker cannot run under ptrace
driver=$(dirname "$2")/tests/checkpoint_driver
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-faults.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
    [ "$failures" -lt 20 ] || exit 1
}

[ -x "$driver" ] || { echo "no driver at $driver" >&2; exit 1; }

# The run directory with one checkpoint, of step 1, from which every case starts.
"$driver" save "$work/golden" 1 3000 1 || exit 1
fresh() {
    rm -rf "$work/run"
    cp -a "$work/golden" "$work/run"
}

# After any fault: step 1 or step 2 loads whole, nothing was set aside, and taking the run sweeps what is left.
check_whole() { # WHAT
    local got
    got=$("$driver" load "$work/run" 2>"$work/err") || fail "$1: loading failed: $got $(cat "$work/err")"
    case $got in
    "step 1" | "step 2") ;;
    *) fail "$1: loaded '$got'" ;;
    esac
    "$driver" take "$work/run" || fail "$1: the run could not be taken"
    ls -A "$work/run/ckpt" "$work/run" | grep -E '^\.tmp-|corrupt' && fail "$1: left behind"
    loaded=$got
}

# ---- the disk is full
# fault: F2 F3
full_disk() {
    local run=$1/run got
    "$driver" save "$run" 1 300000 5 && "$driver" save "$run" 2 300000 5 || { echo "a save on an empty disk failed"; return 1; }
    "$driver" save "$run" 3 500000 5 2>"$work/err" && { echo "a full disk went unnoticed"; return 1; }
    grep -q 'needs .* MiB more than is free in' "$work/err" || { echo "a full disk was reported as: $(cat "$work/err")"; return 1; }
    got=$("$driver" load "$run")
    [ "$got" = "step 2" ] || { echo "after a full disk: '$got'"; return 1; }
}
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir "$work/small"
    export -f full_disk
    export driver work
    unshare -m bash -c 'mount -t tmpfs -o size=1m none "$work/small" || exit 1; full_disk "$work/small"' || fail "full disk"
    echo "full disk: ok"
else
    echo "SKIPPED: the full disk (mounting a small tmpfs wants root)"
fi
fresh
(
    trap '' XFSZ
    ulimit -f 64
    "$driver" save "$work/run" 2 200000 1 2>"$work/err"
)
[ $? = 6 ] || fail "a file size limit: exit is not 6"
grep -q "'$work/run/ckpt/step-0000000002/[a-z]*\.safetensors': File too large" "$work/err" || fail "a file size limit: reported as $(cat "$work/err")"
check_whole "file size limit"

# fault: F5 F6
# ---- cut and flipped files, sampled (the unit tests try every byte)
for file in MANIFEST model.safetensors train.safetensors state.json; do
    path=$work/run/ckpt/step-0000000001/$file
    fresh
    size=$(stat -c %s "$path")
    for part in 0 1 2 3 4 5 6 7; do
        fresh
        truncate -s $((size * part / 8)) "$path"
        "$driver" open "$(dirname "$path")" 2>"$work/err" && fail "$file cut to $part/8 was accepted"
        grep -qF "$file" "$work/err" || fail "$file cut to $part/8: the message does not name it: $(cat "$work/err")"
        fresh
        at=$((size * part / 8))
        byte=$(od -An -tu1 -j "$at" -N1 "$path")
        printf "\\x$(printf %02x $((byte ^ 4)))" | dd of="$path" bs=1 seek="$at" conv=notrunc status=none
        "$driver" open "$(dirname "$path")" 2>"$work/err"
        [ $? = 4 ] || fail "$file with a bit flipped at $at: exit is not 4"
        grep -qF "$file" "$work/err" || fail "$file with a bit flipped at $at: the message does not name it"
    done
done
echo "cut and flipped files: ok"

# A damaged newest checkpoint is set aside, never deleted, and the older one is used.
fresh
"$driver" save "$work/run" 2 3000 5 || fail "a plain second save"
truncate -s -1 "$work/run/ckpt/step-0000000002/model.safetensors"
[ "$("$driver" load "$work/run" 2>"$work/err")" = "step 1" ] || fail "a damaged newest checkpoint: the older one was not used"
grep -q 'truncated' "$work/err" || fail "a damaged newest checkpoint was not reported: $(cat "$work/err")"
[ -d "$work/run/ckpt/step-0000000002.corrupt" ] || fail "a damaged checkpoint was not kept as .corrupt"

# ---- every system call
# fault: F1 F3
if ! command -v strace >/dev/null || ! strace -qq -o "$work/trace" -e inject=getppid:error=EIO true 2>/dev/null; then
    [ "$failures" = 0 ] || exit 1
    echo "SKIPPED: kills and errors at every system call: strace is not installed or may not trace here (ptrace)" >&2
    exit 77
fi

calls="openat write fsync close fallocate mkdir rename renameat2 unlink unlinkat rmdir statfs fstatfs read getdents64 newfstatat fstat chdir"

# How often a save of step $1 uses each call: lines "NAME COUNT" in $work/counts.
count_calls() {
    fresh
    strace -qq -o "$work/trace" "$driver" save "$work/run" "$1" 3000 1 || fail "the save to be interrupted fails by itself"
    for call in $calls; do
        echo "$call $(grep -c "^$call(" "$work/trace")"
    done >"$work/counts"
}

kill_everywhere() { # STEP
    local points=0
    count_calls "$1"
    while read -r call count; do
        for ((n = 1; n <= count; n++)); do
            fresh
            # In a shell of its own, which keeps the message of each death to itself.
            bash -c '"$@"; exit $?' _ strace -qq -o "$work/trace" -e "inject=$call:signal=KILL:when=$n" \
                "$driver" save "$work/run" "$1" 3000 1 2>/dev/null
            [ $? = 137 ] || fail "step $1: $call $n did not kill"
            check_whole "step $1 killed at $call $n"
            points=$((points + 1))
        done
    done <"$work/counts"
    [ "$points" -ge 100 ] || fail "only $points points to kill at"
    echo "killed at $points points of a save of step $1: ok"
}
kill_everywhere 2 # a new checkpoint, and the old one pruned
kill_everywhere 1 # the same step again: two directories change places

# A call that fails: exit 6 and the old or new one whole, or a success that really is one.
errors_everywhere() { # ERROR CALLS...
    local error=$1 points=0 refused=0 code
    shift
    count_calls 2
    while read -r call count; do
        [[ " $* " = *" $call "* ]] || continue
        for ((n = 1; n <= count; n++)); do
            fresh
            strace -qq -o "$work/trace" -e "inject=$call:error=$error:when=$n" "$driver" save "$work/run" 2 3000 1 2>"$work/said"
            code=$?
            check_whole "$error from $call $n"
            points=$((points + 1))
            case $code in
            0) [ "$loaded" = "step 2" ] || fail "$error from $call $n: success was claimed, but '$loaded' loads" ;;
            6) refused=$((refused + 1)); grep -q '^error: .' "$work/said" || fail "$error from $call $n: no message" ;;
            127) grep -q 'shared libraries' "$work/said" || fail "$error from $call $n: exit 127" ;; # before main
            *) fail "$error from $call $n: exit $code: $(cat "$work/said")" ;;
            esac
            # The last fsync is that of pruning: a save that is whole does not fail because an old one stays a while longer.
            [ "$call:$n:$code" != "fsync:$count:0" ] || continue
            case $call:$code in
            fsync:0 | write:0 | fallocate:0) fail "$error from $call $n was ignored" ;;
            esac
        done
    done <"$work/counts"
    echo "$error at $points points ($refused refused): ok"
}
errors_everywhere ENOSPC fallocate write fsync mkdir rename
errors_everywhere EIO write fsync rename close
errors_everywhere EACCES rename mkdir

[ "$failures" = 0 ] || exit 1
