#!/usr/bin/env bash
# Unusual files under the names that a run uses: symbolic links are not followed, pipes do not block, and names of arbitrary bytes
# neither end a run nor break its JSON. A signal before the first step ends a run at once. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 70 30 || exit $?
needs_faults "$work/small"

run() { # STATUS TEXT ARGUMENT...
    local wanted=$1 text=$2 status
    shift 2
    timeout -s KILL 200 "$towers" "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$*: exit $status instead of $wanted: $(cat err)"
    [[ -z $text ]] || grep -qF -- "$text" err || complain "$*: wanted '$text': $(cat err)"
}
loud=(train fashion_cnn --device cpu --threads 1 -b 8)
train=("${loud[@]}" --quiet)

# ---- links in a run directory
# fault: F48
run 0 "" "${train[@]}" --data-path small --max-steps 6 --experiment golden
for name in .lock log.txt metrics.jsonl results.csv layers.jsonl norms.jsonl; do
    rm -rf runs/one
    cp -a runs/golden runs/one
    echo precious >target
    rm -f "runs/one/$name"
    ln -s "$work/target" "runs/one/$name"
    run 6 "is a symbolic link" "${train[@]}" --data-path small --max-steps 8 --resume auto --experiment one
    [[ $(cat target) == precious ]] || complain "$name: what the link leads to was overwritten"
done
rm -rf runs/one

# ---- pipes
# fault: F14
mkdir piped
cp small/* piped
mkfifo piped/classes.txt
run 3 "not a regular file" "${train[@]}" --data-path piped --max-steps 2 --experiment piped
mkdir -p runs/neighbor/ckpt
touch runs/neighbor/ckpt/latest
mkfifo runs/neighbor/env.json runs/golden/memory.json.pipe
run 0 "" "${train[@]}" --data-path small --resume auto --max-steps 6
mv runs/golden/memory.json memory.json
mkfifo runs/golden/memory.json
run 0 "" report runs/golden
rm runs/golden/memory.json*
mv memory.json runs/golden
rm -r runs/neighbor
mkfifo weights.safetensors settings.yaml
run 4 "not a regular file" "${train[@]}" --data-path small --pretrained weights.safetensors --experiment weights
run 2 "not a regular file" "${train[@]}" --data-path small -c settings.yaml --experiment settings
mkdir linked
for file in small/*; do ln -s "$work/$file" linked; done # of a data set links are usual
run 0 "" "${train[@]}" --data-path linked --max-steps 2 --experiment linked

# ---- names
# fault: F27
long=$(printf 'ü%.0s' {1..40})x                 # 81 bytes: cut in the middle of a character at 63
bytes=$'\xff\xfe of \xc3 bytes'                 # not UTF-8
for name in "$long" "$bytes"; do
    cp -a small "$name"
    run 0 "" "${train[@]}" --data-path "$name" --max-steps 2 --output-dir "runs of $name" --experiment "$name" --json
    grep -q '"step":2' out || complain "--json with the name '$name': '$(cat out)'"
    [[ -f "runs of $name/$name/ckpt/latest" ]] || complain "'$name': no checkpoint"
    run 0 "" report "runs of $name/$name" --json
    grep -q '"report":' out || complain "report --json with the name '$name': '$(cat out)'"
done
run 2 "bytes" "${train[@]}" --data-path small --max-steps 2 --output-dir "$(printf 'a%.0s' {1..5000})"

# What commands print of the names of others drives no terminal and forges no line.
class=$'an\033[2Jt' image=$'x\nforged: line\033]0;t\a.pgm'
for split in train val; do
    for name in "$class" bee; do
        mkdir -p "evil/$split/$name"
        for number in 1 2 3; do printf 'P2 4 4 255 %s' "$(printf '7 %.0s' {1..16})" >"evil/$split/$name/$number$image"; done
    done
done
printf 'P2 4 4 255 1' >"evil/train/bee/0$image" # cut off
printf 'GIF89a' >"evil/train/bee/$image.svg"
clean() { # COMMAND...: whatever it exits with
    timeout -s KILL 200 "$towers" "$@" >out 2>err </dev/null
    cat err >>out
    LC_ALL=C grep -qE $'[\001-\010\013-\037]|^forged' out && complain "$*: $(cat -v out)"
    grep -q '[^[:space:]]' out || complain "$*: printed nothing"
}
clean data info evil
clean data check evil
clean data show evil -o sheet.png
clean data convert evil converted
clean data convert evil packed --format tar
clean predict runs/golden evil
clean predict runs/golden evil --csv
clean predict runs/golden evil --json
clean train resnet18 --data-path evil --img-size 32 --device cpu --threads 1 -b 2 --max-steps 1 --bad-samples skip --experiment evil
clean eval runs/evil --bad-samples skip
clean predict runs/evil evil
clean compare runs/evil runs/golden

# ---- a signal in the set-up, and two of two kinds
# fault: F34
started() { pgrep -P "$pid" tower0 >/dev/null; }
stepped() { grep -q '^step 2/' err 2>/dev/null; }
stopped() { # STATUS started|stepped FAULT SIGNALS...: the first signal comes when the run has got so far
    local wanted=$1 reached=$2 fault=$3 signal
    shift 3
    rm -rf runs/stopped err
    TOWERS_FAULT=$fault "$towers" "${loud[@]}" --data-path small --max-steps 40 --log-interval 1 --experiment stopped >out 2>err </dev/null &
    pid=$!
    wait_until "$reached"
    for signal in "$@"; do kill "-$signal" $pid; sleep 0.5; done
    wait $pid
    local status=$?
    [[ $status == "$wanted" ]] || complain "signals $*: exit $status instead of $wanted: $(cat err)"
}
begin=$SECONDS
stopped 143 started "delay:tower=0,step=1,activity=start,ms=30000" TERM
((SECONDS - begin < 20)) || complain "a signal in the set-up waits"
stopped 143 stepped "delay:tower=0,step=3,ms=4000" TERM INT
[[ -f runs/stopped/ckpt/latest ]] || complain "SIGTERM, then SIGINT: nothing was saved: $(cat err)"
stopped 130 stepped "delay:tower=0,step=3,ms=4000" INT INT
[[ ! -f runs/stopped/ckpt/latest ]] || complain "SIGINT twice saves"

check_end "links, pipes, names and early signals do no harm"
