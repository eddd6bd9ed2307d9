#!/usr/bin/env bash
# --upload and --resume s3://...: a run is copied to an object store beside training and goes on from there on a machine that has nothing, with
# the bits of the undisturbed run; also when it was killed in the middle of a copy, and from a store that answers 403 or 503, breaks off,
# hangs, keeps other bytes or joins no parts. Places of other runs and directories with other content are left alone. The store is
# tests/support/s3_server.py, which compares signatures and digests; then moto, whose objects boto3 reads. No secret is left anywhere.
# Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
. "$source_dir/tests/support/moto.sh"
needs_python
small_data data 96 30 || exit $?
needs_faults data
unset "${!AWS_@}"
export HOME=$work/home no_proxy=127.0.0.1,localhost,.localhost
unset XDG_CACHE_HOME
mkdir home store store/away

id=AKIDOFATEST0 secret='hush/secret+Key=1hush' token='hush/token+Of==hush'
coproc STORE { S3_ID=$id S3_SECRET=$secret S3_TOKEN=$token exec python3 "$source_dir/tests/support/s3_server.py" "$work/store" "$work/requests" 2>"$work/store.err"; }
server=$STORE_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port <&"${STORE[0]}" || complain "the store does not start"
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret

train() { # NAME ARGUMENT...: with its messages in err.NAME
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path data --towers 2 -b 8 --threads 1 --seed 3 --summary-interval 0 --net-timeout 20 --experiment "$@" >"out.$1" 2>"err.$1" </dev/null
}
comes() { # ADDRESS NAME ARGUMENT...: the run goes on in another folder of runs
    timeout -s KILL 120 "$towers" train --resume "$1" --net-timeout 20 --output-dir "elsewhere/$2" "${@:3}" >"out.$2" 2>"err.$2" </dev/null
}
goes_on() { # ADDRESS NAME ARGUMENT...: to the end, with the bits of the undisturbed run
    comes "$@" --max-steps 12 || complain "$2 does not go on: $(tail -n 3 "err.$2")"
    cmp -s runs/golden/last.safetensors "elsewhere/$2/${1##*/}/last.safetensors" || complain "$2 ends with other weights"
    cmp -s <(timeless runs/golden/metrics.jsonl) <(timeless "elsewhere/$2/${1##*/}/metrics.jsonl") || complain "$2 has other rows"
}
says() { grep -qF -- "$2" "err.$1" || complain "$1: wanted '$2': $(tail -n 5 "err.$1")"; } # NAME TEXT
counts() { # NAME RUN FAILED SKIPPED CODE WORD: what outcome.json has
    grep -q "\"outcome\":\"$6\".*\"exit_code\":$5,.*\"upload\":{\"run\":$2,\"failed\":$3,\"skipped\":$4}" "runs/$1/outcome.json" ||
        complain "$1: wanted $2 run, $3 failed, $4 skipped, $6 with $5: $(cat "runs/$1/outcome.json")"
}
faults() { printf '%s\n' "${@:-GET none 404 0}" >store/faults.new && mv store/faults.new store/faults; } # LINE...: see s3_server.py
stored() { echo "store/away/runs/$1"; }
equal() { # NAME: the store has what the run directory has, but for the log of the copies and what was written after them
    diff -rq -x .lock -x upload.log -x outcome.json -x latest "runs/$1" "$(stored "$1")" >"$out" || complain "$1: the copy differs: $(cat "$out")"
}
supervisor() { cat "runs/$1/.lock"; }

ends 0 golden --max-steps 12

# ---- each checkpoint is copied, the MANIFEST last; the run goes on where there is nothing
ends 0 first --max-steps 3 --upload s3://away/runs/first
counts first 2 0 0 0 finished
says first "upload: 2 copies, 0 failed, 0 checkpoints skipped"
ends 0 first --max-steps 6 --resume auto # it keeps its store
counts first 2 0 0 0 finished
equal first
for step in 3 6; do
    order=$(grep "^PUT .*/runs/first/" requests | grep "/ckpt/step-000000000$step/" | sed 's/^[^ ]* [^ ]* .*\///; s/ .*//' | paste -sd' ')
    [[ $order == *" MANIFEST" && $(wc -w <<<"$order") == 4 ]] || complain "the order of step $step: $order"
done
[[ $(grep -c '^PUT .*/first/first-batch.jpg ' requests) == 1 ]] || complain "what the store has is sent again: $(grep -c '^PUT .*/first/first-batch.jpg ' requests)"
goes_on s3://away/runs/first first
says first "s3://away/runs/first was brought to elsewhere/first/first: step 6, "
[[ -e $(stored first)/ckpt/step-0000000012/MANIFEST ]] || complain "a run that goes on copies no more"
# what is copied while the run trains has no sign of life of this machine, which would stay there for ever
TOWERS_FAULT=delay:tower=0,step=3,ms=3000 ends 0 beats --max-steps 4 --checkpoint-steps 2 --upload s3://away/runs/beats
equal beats
# a directory that has the run already goes on there; one that has less of it, or another one, is left alone
comes s3://away/runs/first first --max-steps 12 || complain "a run that is here: $(tail -n 3 err.first)"
says first "s3://away/runs/first is here already, up to step 12, in elsewhere/first/first: nothing was brought"
before=$(files_of elsewhere/first | grep -v upload.log)
comes s3://away/runs/first first --max-steps 12 || complain "a run that is complete: $(tail -n 3 err.first)"
[[ $(grep -v /upload.json <<<"$before") == "$(files_of elsewhere/first | grep -v /upload.)" ]] || complain "a run that is complete is changed"
mkdir elsewhere/less && cp -a runs/first elsewhere/less
refuses 2 "that run is in elsewhere/less/first, too, up to step 6, and in the store up to step 12: remove or rename" "$towers" train --resume s3://away/runs/first --output-dir elsewhere/less
mkdir -p elsewhere/other/first && echo mine >elsewhere/other/first/note
refuses 2 "the directory elsewhere/other/first is there already, and is not of that run: remove it, or choose" "$towers" train --resume s3://away/runs/first --output-dir elsewhere/other
[[ $(cat elsewhere/other/first/note) == mine && $(ls elsewhere/other) == first ]] || complain "another directory was changed: $(ls -a elsewhere/other elsewhere/other/first)"
"$towers" train --resume s3://away/runs/first --output-dir elsewhere/other --experiment second --max-steps 12 >"$out" 2>"$err" </dev/null || complain "under another name: $(tail -n 3 "$err")"
[[ -e elsewhere/other/second/best.safetensors ]] || complain "a run under another name has no best weights"
refuses 2 "--experiment '../named': expected a plain name" "$towers" train --resume s3://away/runs/first --output-dir elsewhere/other --experiment ../named
[[ ! -e elsewhere/named ]] || complain "a run is brought outside --output-dir"
# from a copy that a tool of the store has made, it goes on there: its first place stays as it is
cp -a "$(stored first)" "$(stored moved)"
before=$(files_of "$(stored first)")
comes s3://away/runs/moved moved --max-steps 15 || complain "a run whose copy was copied: $(tail -n 3 err.moved)"
[[ $before == "$(files_of "$(stored first)")" && -e $(stored moved)/ckpt/step-0000000015/MANIFEST ]] || complain "a run from a copy is copied to where the first one is"
grep -q '^upload: "s3://away/runs/moved"' elsewhere/moved/moved/args.yaml || complain "a run from a copy keeps another place: $(grep ^upload elsewhere/moved/moved/args.yaml)"
# half a copy of a newer checkpoint is not more of the run
mkdir "$(stored first)/ckpt/step-0000000099" && touch "$(stored first)/ckpt/step-0000000099/model.safetensors"
comes s3://away/runs/first first --max-steps 12 || complain "a run of which the store has half a checkpoint more: $(tail -n 3 err.first)"
says first "is here already, up to step 12"
rm -r "$(stored first)/ckpt/step-0000000099"
# a command that stands in the store is not run, however its name is written
for key in '"after\\x2dcheckpoint"' after-checkpoint; do
    rm -rf "$(stored commanded)" && cp -a "$(stored first)" "$(stored commanded)"
    sed -i "/^upload/d; s|^# after-checkpoint:.*|$key: \"touch ran\" # from command line|" "$(stored commanded)/args.yaml"
    refuses 2 "the run in the store has --after-checkpoint 'touch ran', and a command from a store is not run: give it, or none, with --after-checkpoint" "$towers" train --resume s3://away/runs/commanded --output-dir elsewhere/commanded --max-steps 13
    [[ ! -e ran && -z $(ls -A elsewhere/commanded) ]] || complain "a command of the store: $(ls -A elsewhere/commanded)"
    rm -rf elsewhere/copied && mkdir elsewhere/copied && cp -a "$(stored commanded)" elsewhere/copied # as a tool of the store does
    refuses 2 "that run is in elsewhere/copied/commanded, too, which has --after-checkpoint 'touch ran'; whoever writes to the store may have given it" "$towers" train --resume s3://away/runs/commanded --output-dir elsewhere/copied --max-steps 13
    [[ ! -e ran ]] || complain "a command of a run that was copied from the store is run"
    [[ $key != \"* ]] || refuses 3 "names commands or files in another way than this program writes them" "$towers" train --resume s3://away/runs/commanded --output-dir elsewhere/commanded --after-checkpoint none
done
comes s3://away/runs/commanded commanded --max-steps 13 --after-checkpoint 'touch mine' || complain "a command of the call: $(tail -n 3 err.commanded)"
[[ -e mine && ! -e ran ]] || complain "another command than that of the call was run"
# nor does it follow a name of a file that stands there, as of a recipe, which may have a command
foreign() { # NAME FLAG VALUE: the first run, with one more setting of its user
    rm -rf "$(stored "$1")" && cp -a "$(stored first)" "$(stored "$1")"
    sed -i "/^recipe:/s/.*/# &/; s|^# $2:.*|$2: \"$3\" # from command line|" "$(stored "$1")/args.yaml"
    grep -q "^$2: \"$3\"" "$(stored "$1")/args.yaml" || complain "args.yaml has no --$2: $(grep "$2" "$(stored "$1")/args.yaml")"
}
echo 'after-checkpoint: touch ran' >evil.yaml
foreign recipe recipe ./evil.yaml
unset TOWERS_RECIPE
refuses 2 "the run in the store has --recipe './evil.yaml', and a name of a file from a store is not followed: give it with --recipe" "$towers" train --resume s3://away/runs/recipe --output-dir elsewhere/recipe --max-steps 13
foreign numbered recipe 5.0 # a number, but to a recipe a name of a file
refuses 2 "the run in the store has --recipe '5.0', and a name of a file" "$towers" train --resume s3://away/runs/numbered --output-dir elsewhere/numbered --max-steps 13
foreign hexed class-weights 0x5 # no number to this option
refuses 2 "the run in the store has --class-weights '0x5', and a name of a file" "$towers" train --resume s3://away/runs/hexed --output-dir elsewhere/hexed --max-steps 13
foreign weighing class-weights evil.yaml
refuses 2 "the run in the store has --class-weights 'evil.yaml', and a name of a file" "$towers" train --resume s3://away/runs/weighing --output-dir elsewhere/weighing --max-steps 13
export TOWERS_RECIPE=none
comes s3://away/runs/recipe recipe --max-steps 13 || complain "a recipe of the call: $(tail -n 3 err.recipe)"
[[ ! -e ran ]] || complain "a recipe of the store has run a command"
# places of another machine are left out, and a later call does not take them from the run that is here, either
foreign places prometheus "$work/victim.prom"
sed -i "s|^# cache-dir:.*|cache-dir: \"$work/cache-of-others\" # from environment|; s|^\(# \)\?s3-endpoint:.*|s3-endpoint: \"http://127.0.0.1:9\" # from run|" "$(stored places)/args.yaml"
comes s3://away/runs/places places --max-steps 13 --towers 3
says places "--cache-dir '$work/cache-of-others', --s3-endpoint 'http://127.0.0.1:9', --prometheus '$work/victim.prom' of the run in the store is left out: a place that this call does not name"
comes elsewhere/places/places places --max-steps 13 || complain "a run with places of others: $(tail -n 3 err.places)"
comes s3://away/runs/places mine --max-steps 13 --s3-endpoint "$AWS_ENDPOINT_URL" --prometheus "$work/own.prom" --cache-dir none || complain "places of the call: $(tail -n 3 err.mine)"
[[ ! -e victim.prom && ! -e cache-of-others && -s own.prom ]] || complain "a run of the store writes where it likes"
! grep -q "is left out" err.mine || complain "what the call gives is said to be left out"

# ---- places that belong to others, and what is no place
ends 2 taken --max-steps 3 --upload s3://away/runs/first
says taken "--upload s3://away/runs/first: another run is there: choose another address, or go on with that run by --resume s3://away/runs/first"
[[ ! -e runs/taken/metrics.jsonl ]] || complain "a run whose place is taken takes steps"
mkdir -p "$(stored full)" && touch "$(stored full)/x"
ends 2 full --max-steps 3 --upload s3://away/runs/full
says full "there are objects already, but no upload.json of a run"
mkdir -p "$(stored vast)" && truncate -s 1M "$(stored vast)/upload.json"
ends 3 vast --max-steps 3 --upload s3://away/runs/vast
says vast "s3://away/runs/vast/upload.json sends more than the 65536 bytes of the expected file"
for place in s3://away/runs/ s3://away away/runs/x http://127.0.0.1/x "s3://away/a?b"; do
    ends 2 place --max-steps 3 --upload "$place"
    grep -qE -- "--upload|expected a path behind the host" err.place || complain "$place: $(cat err.place)"
done
ends 2 both --max-steps 3 --upload s3://away/runs/both --after-checkpoint true
ends 2 timeout --max-steps 3 --upload-timeout 5
refuses 4 "--resume s3://away/runs/none: there is no checkpoint of a run" "$towers" train --resume s3://away/runs/none --net-timeout 2
refuses 2 "--resume s3://away/runs/first: this call downloads nothing" "$towers" train --resume s3://away/runs/first --dry-run
printf 'model: fashion_cnn\nlr: choices(0.1 | 0.01)\nupload: s3://away/runs/sweep\n' >sweep.yaml
refuses 2 "sweep.yaml:3:1: 'upload' is the place of one run, and each run of a sweep needs its own" "$towers" sweep sweep.yaml
refuses 2 "s3://... is the address of a store, but only files and folders are read" "$towers" eval s3://away/runs/first
for place in https://id:hush-1@host/x "https://host/x?key=hush-1" s3://id:hush-1@bucket/x; do
    refuses 2 "is not taken, because" "$towers" train --resume "$place"
    ! grep -F hush-1 "$err" || complain "a secret of $place is repeated"
done
AWS_SECRET_ACCESS_KEY=none ends 6 keyless --max-steps 3 --upload s3://away/runs/keyless
says keyless "answers 403: it is forbidden; the request was signed with the keys of AWS_ACCESS_KEY_ID"
faults "PUT upload.json 403 9"
ends 6 denied --max-steps 3 --upload s3://away/runs/denied
[[ ! -e runs/denied/metrics.jsonl ]] || complain "a run that may not write to its place takes steps"

# ---- two that claim a place at the same time: one of them has it, also in stores that know no conditions, and the other one says so
record() { sed -n 's/.*"run": "\([0-9a-f]*\)".*/\1/p' "$1/upload.json"; }
faults "PUT runs/rival/upload.json rival 1" "PUT runs/careless/upload.json careless 1" "PUT runs/lost/upload.json lost 1" "PUT runs/old/upload.json 501 1" \
    "PUT runs/raced/upload.json 409 1" "PUT follower/ckpt/step-0000000003/train follower 1" "PUT usurped/ckpt/step-0000000003/train rival 1" \
    "PUT bare/ckpt/step-0000000003/train vanish 1"
for name in rival careless; do
    ends 2 $name --max-steps 3 --upload s3://away/runs/$name
    says $name "--upload s3://away/runs/$name: another run is there: choose another address, or go on with that run by --resume"
    [[ ! -e runs/$name/metrics.jsonl && $(record "$(stored $name)") == eeee* && $(ls "$(stored $name)") == upload.json ]] || complain "$name: a run in the place of another one: $(ls runs/$name "$(stored $name)")"
done
for name in lost old raced; do # its own answer was lost, the store knows no conditions, or is just busy with another request
    ends 0 $name --max-steps 3 --upload s3://away/runs/$name
    equal $name
done
# somebody else claims it later: the copy that was going is no checkpoint, none follows, and the run that has ended well is complete here
for name in follower usurped; do
    ends 6 $name --max-steps 3 --upload s3://away/runs/$name
    counts $name 2 2 0 6 finished
    [[ -e $(stored $name)/ckpt/step-0000000003/train.safetensors && ! -e $(stored $name)/ckpt/step-0000000003/MANIFEST && -e runs/$name/ckpt/step-0000000003/MANIFEST ]] ||
        complain "$name: a checkpoint in the place of somebody else: $(ls "$(stored $name)/ckpt/step-0000000003")"
done
says follower "warning: --upload: the checkpoint of step 3 was not copied: another process, perhaps on another machine, goes on with this run at s3://away/runs/follower, and nothing more is copied there from here: let one of them go on"
says usurped "the place s3://away/runs/usurped belongs to another run by now, and nothing more of this one is copied there: choose another one for it with --upload"
! grep "the next copy has all" err.follower err.usurped || complain "a next copy is promised, which will not come"
# who comes last has it: the same run goes on here
ends 0 follower --max-steps 6 --resume auto
[[ -e $(stored follower)/ckpt/step-0000000006/MANIFEST ]] || complain "who goes on with a run last copies nothing"
# a place that has lost its record becomes the run's own again
ends 0 bare --max-steps 3 --upload s3://away/runs/bare
counts bare 2 0 0 0 finished
equal bare
faults

# ---- killed in the middle of a copy: what is half there is no checkpoint
ends 0 killed --max-steps 3 --upload s3://away/runs/killed
faults "PUT killed/ckpt/step-0000000006/train hang 1" "PUT killed/ckpt/step-0000000009/train hang 1" "PUT killed/ckpt/step-0000000012/train hang 1"
{ train killed --max-steps 12 --checkpoint-steps 3 --resume auto; } 2>/dev/null &
job=$!
wait_until grep -qE '^PUT .*killed/ckpt/step-00000000(06|09|12)/train' requests || complain "no copy begins: $(tail -n 3 err.killed)"
tr '\0' '\n' <"/proc/$(supervisor killed)/cmdline" >>cmdlines
for pid in $(pgrep -g "$(pgrep -P "$(supervisor killed)" after_ckpt)" 2>/dev/null); do tr '\0' '\n' <"/proc/$pid/cmdline"; done >>cmdlines
kill -KILL "$(supervisor killed)"
wait $job
faults
[[ -n $(ls -d "$(stored killed)"/ckpt/step-00000000{06,09,12} 2>/dev/null) ]] || complain "nothing of a half copy is there: $(ls "$(stored killed)/ckpt")"
goes_on s3://away/runs/killed killed
says killed "was brought to elsewhere/killed/killed: step 3, "
says killed "was not taken: its copy is not complete"

# ---- faults of the store that pass
passes() { # NAME
    ends 0 "$1" --max-steps 3 --stall 1 --upload "s3://away/runs/$1"
    counts "$1" 2 0 0 0 finished
    equal "$1"
    grep -q "$1/ckpt/step-0000000003/train.safetensors: " "runs/$1/upload.log" || complain "$1: the log says nothing: $(cat "runs/$1/upload.log")"
    goes_on "s3://away/runs/$1" "$1"
}
# ---- faults that do not: the run is complete here
once() {
    ends 0 once --max-steps 3 --upload s3://away/runs/once
    says once "warning: --upload: the checkpoint of step 3 was not copied: s3://away/runs/once/ckpt/step-0000000003/"
    says once "the server answers 403: it is forbidden; the request was signed with the keys of AWS_ACCESS_KEY_ID"
    counts once 2 1 0 0 finished
    equal once
}
never() {
    ends 6 never --max-steps 3 --upload s3://away/runs/never
    says never "error: the run has ended, and runs/never has all of it, but its last copy to s3://away/runs/never is not complete: s3://away/runs/never/ckpt/"
    counts never 2 2 0 6 finished
    [[ -e runs/never/last.safetensors && -e runs/never/report.html ]] || complain "a run whose copy fails is not complete"
    comes s3://away/runs/never never
    [[ $? == 4 ]] || complain "a run without a checkpoint in its store is taken"
    says never "there is no checkpoint of a run"
}
again() { # the same command copies what is missing of a complete run
    ends 6 again --max-steps 3 --upload s3://away/runs/again
    cp runs/again/outcome.json again.json
    ends 0 again --max-steps 3 --resume auto
    equal again
    cmp -s again.json runs/again/outcome.json || complain "a complete run that is copied ends anew: $(cat runs/again/outcome.json)"
    says again "upload: 2 copies, 0 failed, 0 checkpoints skipped"
}
partly() {
    ends 6 partly --max-steps 3 --upload s3://away/runs/partly
    comes s3://away/runs/partly partly
    [[ $? == 4 ]] || complain "a checkpoint without MANIFEST is taken"
    says partly "none of its checkpoints can be used: step-0000000003 of s3://away/runs/partly was not taken: its copy is not complete"
    [[ -z $(ls -A elsewhere/partly) ]] || complain "what was brought in vain is left: $(ls -A elsewhere/partly)"
}
slow() {
    ends 6 slow --max-steps 3 --upload s3://away/runs/slow --upload-timeout 4
    says slow "waiting for --upload for "
    says slow "it did not end within 4 s (--upload-timeout)"
    counts slow 1 1 0 6 finished
}
# ---- the newest is next, and stays although --keep 1 would remove it
lags() {
    ends 0 lags --max-steps 6 --checkpoint-steps 1 --keep 1 --upload s3://away/runs/lags
    local run
    run=$(sed -n 's/.*"upload":{"run":\([0-9]*\),.*/\1/p' runs/lags/outcome.json)
    counts lags "$run" 0 $((7 - run)) 0 finished
    goes_on s3://away/runs/lags lags
}
# ---- damage in the store: an older checkpoint is taken, and this is said
damaged() {
    ends 0 damaged --max-steps 3 --upload s3://away/runs/damaged
    ends 0 damaged --max-steps 6 --resume auto
    printf x | dd of="$(stored damaged)/ckpt/step-0000000006/model.safetensors" bs=1 seek=3000 conv=notrunc status=none
    goes_on s3://away/runs/damaged damaged
    says damaged "warning: step-0000000006 of s3://away/runs/damaged was not taken: "
    says damaged "was brought to elsewhere/damaged/damaged: step 3, "
}
# ---- the same of a checkpoint that the store does not give; but what may pass does not cost steps
withheld() { # NAME ANSWER
    ends 0 "$1" --max-steps 3 --upload "s3://away/runs/$1"
    ends 0 "$1" --max-steps 6 --resume auto
    local files
    files=$(find "$(stored "$1")" -type f ! -path '*/ckpt/*' -o -type f -path '*/step-0000000003/*' | wc -l)
    goes_on "s3://away/runs/$1" "$1"
    says "$1" "warning: step-0000000006 of s3://away/runs/$1 was not taken: s3://away/runs/$1/ckpt/step-0000000006/model.safetensors: the server answers $2"
    says "$1" "was brought to elsewhere/$1/$1: step 3, $files files"
}
nothing() {
    ends 0 nothing --max-steps 3 --upload s3://away/runs/nothing
    comes s3://away/runs/nothing nothing
    [[ $? == 4 && -z $(ls -A elsewhere/nothing) ]] || complain "nothing: a run whose checkpoints are all refused is taken"
    says nothing "none of its checkpoints can be used: step-0000000003 of s3://away/runs/nothing was not taken: s3://away/runs/nothing/ckpt/step-0000000003/"
}
passing() {
    ends 0 passing --max-steps 3 --upload s3://away/runs/passing
    ends 0 passing --max-steps 6 --resume auto
    comes s3://away/runs/passing passing --net-timeout 2
    [[ $? == 6 && -z $(ls -A elsewhere/passing) ]] || complain "passing: an older checkpoint is taken although the newest may come: $(tail -n 2 err.passing)"
    says passing "step-0000000006/model.safetensors: the server answers 503"
}
# ---- killed while the run comes: nothing has its name, and the next call brings it
broken_off() {
    ends 0 brought --max-steps 3 --upload s3://away/runs/brought
    "$towers" train --resume s3://away/runs/brought --output-dir elsewhere/brought --max-steps 12 >out.brought 2>err.brought </dev/null &
    wait_until grep -q '^GET .*/runs/brought/best.safetensors ' requests || complain "brought: no object is asked for: $(tail -n 3 err.brought)"
    kill -KILL $!
    wait $! 2>/dev/null
    [[ ! -e elsewhere/brought/brought ]] || complain "half a run has its name: $(ls elsewhere/brought/brought)"
    goes_on s3://away/runs/brought brought
}
# ---- large files go in parts, of which each may fail
large() { # NAME ARGUMENT...
    timeout -s KILL 240 "$towers" train googlenet --no-aux --img-size 32 --data-path data -b 8 --towers 1 --threads 1 --seed 3 --summary-interval 0 --eval-interval 0 --checkpoint-steps 2 --net-timeout 20 --experiment "$@" >"out.$1" 2>"err.$1" </dev/null
}
parts() {
    large whole --max-steps 2 || complain "a large model: $(tail -n 3 err.whole)"
    large parts --max-steps 1 --upload s3://away/runs/parts || complain "a large model is not copied: $(tail -n 3 err.parts)"
    equal parts
    grep -q '"upload":{"run":2,"failed":0,' runs/parts/outcome.json || complain "parts: $(cat runs/parts/outcome.json) $(cat runs/parts/upload.log)"
    for text in "has no <UploadId>" "503: the server is busy; trying again" "of part 1 the store says that it has the ETag" "the store has not joined the parts: '<?xml version='1.0'?><Error>"; do
        grep -qF "$text" runs/parts/upload.log || complain "parts: wanted '$text': $(cat runs/parts/upload.log)"
    done
    [[ $(grep -c '^DELETE .*/runs/parts/.*uploadId=' requests) == 2 ]] || complain "parts of a copy that failed are left: $(grep ^DELETE requests)"
    timeout -s KILL 240 "$towers" train --resume s3://away/runs/parts --output-dir elsewhere/parts --max-steps 2 >out.parts 2>err.parts </dev/null || complain "a large model does not go on: $(tail -n 3 err.parts)"
    cmp -s <(tensors runs/whole/last.safetensors) <(tensors elsewhere/parts/parts/last.safetensors) || complain "a large model has other weights"
}
# ---- several programs: rank 0 alone brings and copies
hosts() {
    mpirun_find
    [[ -n ${mpirun[*]} ]] || { left_out "no mpirun: a run of several programs in a store"; return; }
    ends 0 hosts --max-steps 3 --upload s3://away/runs/hosts
    new hosts
    timeout -s KILL 240 "${mpirun[@]}" 2 "$work/program" "$towers" train --device cpu --towers 2 --processes 2 --resume s3://away/runs/hosts --output-dir elsewhere/hosts --max-steps 12 >out.hosts 2>err.hosts </dev/null
    [[ $(cat "$codes/0") == 0 && $(cat "$codes/1") == 0 ]] || complain "hosts: exit codes $(cat "$codes/0") and $(cat "$codes/1"): $(tail -n 5 err.hosts)"
    [[ $(grep -c "was brought to elsewhere/hosts/hosts" err.hosts) == 1 ]] || complain "several programs bring the run: $(grep brought err.hosts)"
    [[ -e $(stored hosts)/ckpt/step-0000000012/MANIFEST ]] || complain "several programs copy nothing"
}
faults "PUT busy/ckpt/step-0000000003/train 503 2" "PUT cut/ckpt/step-0000000003/train cut 2" "PUT mangled/ckpt/step-0000000003/train mangle 2" \
    "PUT digest/ckpt/step-0000000003/train 400 2" "PUT silent/ckpt/step-0000000003/train hang 1" "PUT once/ckpt 403 1" "PUT never/ckpt 403 99" "PUT again/ckpt 403 2" "GET brought/best.safetensors hang 1" \
    "PUT partly/ckpt/step-0000000003/MANIFEST 403 99" "PUT slow/ckpt hang 9" "PUT lags/ckpt/step-0000000001/train 503 3" \
    "GET forbidden/ckpt/step-0000000006/model 403 9" "GET gone/ckpt/step-0000000006/model 404 9" "GET nothing/ckpt/step- 403 99" "GET passing/ckpt/step-0000000006/model 503 99" \
    "POST parts/last.safetensors?uploads blank 1" "PUT parts/ckpt/step-0000000001/train.safetensors?partNumber=1 mangle 1" \
    "PUT parts/ckpt/step-0000000001/train.safetensors?partNumber=2 503 1" "POST parts/ckpt/step-0000000001/model.safetensors?uploadId blank 1"
for name in busy cut mangled digest silent; do alongside passes $name; done
together
for part in once never again partly slow lags damaged broken_off; do alongside $part; done
together
alongside withheld forbidden 403
alongside withheld gone 404
alongside nothing
alongside passing
together
alongside parts
alongside hosts
together

# ---- the commands of the page
sed -n '/^```bash$/,/^```$/p' "$source_dir/docs/remote.md" | grep '^towers .* s3://.*/runs/' | sed "s|^towers|\"\$towers\"|; s|s3://bucket/|s3://away/|; s|http://127.0.0.1:9000|$AWS_ENDPOINT_URL|; s|--data-path photos|--data-path data|; s|resnet18|fashion_cnn|; s|--epochs [0-9]*|--max-steps 3|" >page
[[ $(wc -l <page) == 2 ]] || complain "docs/remote.md has $(wc -l <page) commands of runs in a store"
while read -r line; do (eval "$line") >out.page 2>err.page </dev/null || complain "docs/remote.md: $line: exit $?: $(tail -n 3 err.page)"; mv runs/photos gone 2>/dev/null; done <page

# ---- no secret anywhere: not in the processes that copy, not in what they leave
[[ $(grep -c . cmdlines) -gt 20 ]] || complain "the command lines of a run that copies: $(cat cmdlines)"
found=$(grep -rlF -e "$secret" -e "${secret:0:12}" runs elsewhere store out.* err.* cmdlines "$out" "$err")
[[ -z $found ]] || complain "a secret is in $found"
[[ $(find runs elsewhere store -type f | wc -l) -gt 500 ]] || complain "only $(find runs elsewhere store -type f | wc -l) files were searched"

# ---- a store of others
mkdir seed && touch seed/x
if moto_begin "$work/seed" "runs in"; then
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret
    ends 0 moto --max-steps 3 --upload s3://pets/runs/moto
    large motos --max-steps 1 --upload s3://pets/runs/motos || complain "a large model in moto: $(tail -n 3 err.motos)"
    for name in moto motos; do
        AWS_DEFAULT_REGION=us-east-1 "$python" "$source_dir/tests/support/s3_fetch.py" pets "runs/$name" "boto/$name" || complain "boto3 does not read $name"
        diff -rq -x .lock -x upload.log -x outcome.json -x latest "runs/$name" "boto/$name" >"$out" || complain "$name: boto3 reads other files: $(cat "$out")"
    done
    goes_on s3://pets/runs/moto moto
    grep -rlF "$secret" runs elsewhere boto out.* err.* && complain "a secret of moto is left"
fi
check_end "runs are copied to a store, and go on from there with the bits of the undisturbed run"
