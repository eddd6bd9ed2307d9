#!/usr/bin/env bash
# Every file that a run, an evaluation, an export or a conversion publishes is on disk before it gets its name: no rename without an fsync of
# the content before and of the folder afterwards, and no temporary file is left (tests/support/durable.py reads the system calls).
# Numbers for Prometheus are of the moment and need not survive.
. "$1/tests/support/check.sh"
needs_python
strace -qq -o trace true 2>/dev/null || { echo "SKIPPED: strace is not installed or may not trace here (ptrace)" >&2; exit 77; }
calls=openat,write,writev,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2

# durable LEAST COMMAND...: it publishes at least so many files, all of them durably
durable() {
    local least=$1 said
    strace -f -qq -y -s 0 -o trace -e trace="$calls" "${@:2}" >out 2>err || complain "${*:3:2}: $(tail -n 3 err)"
    said=$(python3 "$source_dir/tests/support/durable.py" . trace numbers.prom) || complain "${*:3:2}: $said"
    [[ ${said##*$'\n'} =~ ^([0-9]+) && ${BASH_REMATCH[1]} -ge $least ]] || complain "${*:3:2}: wanted $least files, but $said"
}

small_data data 1000 200
durable 12 "$towers" train fashion_cnn --data-path data --epochs 2 --towers 2 -b 16 --experiment a --prometheus numbers.prom --quiet
durable 1 "$towers" eval runs/a --calibrate
durable 1 "$towers" export runs/a model.onnx
durable 1 "$towers" compare runs/a runs/a -o page.html
small_photos=$source_dir/tests/fuzz/corpus/image
mkdir -p photos/train/x photos/train/y && cp "$small_photos"/baseline.jpg photos/train/x/ && cp "$small_photos"/rgb.png photos/train/y/
durable 1 "$towers" data convert photos packed --format mds

# The test of the test: a rename without a sync.
mkdir -p other && cat >other/trace <<END
7 openat(AT_FDCWD, "a.tmp", O_WRONLY) = 3<$work/other/a.tmp>
7 write(3<$work/other/a.tmp>, ""..., 5) = 5
7 rename("a.tmp", "a") = 0
7 fsync(4<$work/other>) = 0
END
python3 "$source_dir/tests/support/durable.py" other other/trace >out && complain "accepted: a rename without a sync"
grep -q 'a.tmp was renamed before it was synced' out || complain "not named: $(cat out)"
check_end "every published file is synced before it gets its name, its folder afterwards, and nothing temporary stays"
