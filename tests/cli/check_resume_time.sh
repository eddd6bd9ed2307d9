#!/usr/bin/env bash
# What an interrupted epoch has taken counts in the time of a resumed run, in results.csv and in `towers runs`, and its start is its first one;
# killed within an epoch, stopped at its end by --max-steps and lengthened, twice.
. "$1/tests/support/check.sh"
needs_python
small_data data 72 30 || exit $?
needs_faults data

train() { # NAME ARGUMENT...: 9 steps an epoch
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path data --threads 1 -b 8 --lr 0 --checkpoint-steps 1 --summary-interval 0 --quiet --experiment "$@" >"$out" 2>"$err" </dev/null
}
started() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["started_at"])' "runs/$1/env.json"; }
least() { # NAME SECONDS: at least so long, in all
    awk -F, -v least="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "seconds") c = i } NR > 1 { sum += $c } END { exit !(sum >= least) }' "runs/$1/results.csv" ||
        complain "$1: less than $2 s: $(cat "runs/$1/results.csv")"
    "$towers" runs --json | python3 -c '
import json, sys
[run] = [run for run in json.load(sys.stdin) if run["run"] == sys.argv[1]]
assert run["seconds"] >= float(sys.argv[2]), run' "$1" "$2" || complain "$1: towers runs"
}

slow=delay:tower=0,step=1,ms=200
TOWERS_FAULT="$slow;kill:tower=0,step=5" train killed --epochs 2 && complain "not killed"
first=$(started killed)
TOWERS_FAULT="$slow;kill:tower=0,step=8" train killed --epochs 2 --resume auto && complain "not killed again"
train killed --epochs 2 --resume auto || complain "killed: $(cat "$err")"
least killed 1.4 # seven steps, in two processes
[[ $(started killed) == "$first" ]] || complain "killed: started again"

TOWERS_FAULT=$slow train longer --epochs 2 --max-steps 5 || complain "longer: $(cat "$err")"
first=$(started longer)
train longer --epochs 2 --max-steps 18 --resume auto || complain "longer: $(cat "$err")"
least longer 1
[[ $(started longer) == "$first" ]] || complain "longer: started again"

check_end "the time of a resumed run is that of all of its processes"
