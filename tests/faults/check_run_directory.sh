#!/usr/bin/env bash
# Somebody renames, removes or replaces the directory of a run that trains: the run saves where its directory is now, ends with exit code 6
# and that name, and writes nothing to another directory that has taken its name. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/data" 400 100 || exit $?

train() { # NAME ARGUMENT...
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --batch-size 8 --device cpu --output-dir runs \
        --experiment "$@" >"$out" 2>"$err" </dev/null
}
rows() { # RUN
    (($(wc -l <"$1/metrics.jsonl") >= 3))
}
# disturbed NAME TEXT COMMAND...: what happens to a run while it trains, and what it says
disturbed() {
    local name=$1 text=$2 status
    shift 2
    train "$name" --max-steps 1000000 --epochs 1000000 --checkpoint-steps 5 --max-restarts 3 &
    wait_until rows "runs/$name" || complain "$name: does not train: $(cat "$err")"
    "$@"
    wait $!
    status=$?
    [[ $status == 6 ]] || complain "$name: exit $status instead of 6: $(tail -n 3 "$err")"
    grep -qF -- "$text" "$err" && [[ $(grep -c '^error: ' "$err") == 1 ]] || complain "$name: wanted '$text', found: $(cat "$err")"
}
# whole RUN: all records are in it, up to its last checkpoint, from which it goes on
whole() {
    local steps
    steps=$(sed -E 's/step-0*//' "$1/ckpt/latest")
    [[ $(wc -l <"$1/metrics.jsonl") == "$steps" ]] || complain "$1: $(wc -l <"$1/metrics.jsonl") rows, but the checkpoint is of step $steps"
    grep -q '"outcome":"failed",.*"exit_code":6,' "$1/outcome.json" || complain "$1: $(cat "$1/outcome.json")"
    timeout -s KILL 120 "$towers" train fashion_cnn --resume "$1" --data-path "$work/data" --max-steps $((steps + 3)) --max-restarts 0 >"$out" 2>"$err" </dev/null ||
        complain "$1: does not go on: $(cat "$err")"
    [[ $(wc -l <"$1/metrics.jsonl") == $((steps + 3)) ]] || complain "$1: $(wc -l <"$1/metrics.jsonl") rows after step $((steps + 3))"
}

# fault: F59
renamed() {
    disturbed renamed "the run directory runs/renamed was renamed while the run trained: its records are in $work/elsewhere" mv runs/renamed elsewhere
    [[ ! -e runs/renamed ]] || complain "renamed: a second directory: $(ls -a runs/renamed)"
    whole elsewhere
}
replace() {
    mv runs/replaced taken && mkdir runs/replaced && touch runs/replaced/of-another
}
replaced() {
    disturbed replaced "its records are in $work/taken" replace
    [[ $(ls -A runs/replaced) == of-another ]] || complain "replaced: wrote to another directory: $(ls -A runs/replaced)"
    whole taken
}
# While the run still writes, rm may find a new file in what it has just emptied.
remove() {
    wait_until rm -rf runs/removed
}
removed() {
    disturbed removed "the run directory runs/removed was removed while the run trained" remove
    [[ ! -e runs/removed ]] || complain "removed: begun anew: $(ls -a runs/removed)"
}
for story in renamed replaced removed; do alongside $story; done
together
check_end "a run stays in its directory, and says where that has gone"
