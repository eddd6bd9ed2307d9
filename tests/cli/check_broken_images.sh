#!/usr/bin/env bash
# Ninety broken files (cut off in every segment, impossible sizes, bombs, wrong checksums, other formats), folders with circles of
# links, pipes, devices and holes, and a folder that changes while a run reads it: each is named with a message that says what is wrong,
# and nothing crashes, hangs or exits 0. usage: check_broken_images.sh SOURCE_FOLDER BINARY
# fault: F14 F15 F17 F18 F21
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache
corpus=$source_dir/tests/fuzz/corpus/image

train() { # NAME DATA [ARGUMENT...]
    "$towers" train googlenet --device cpu --threads 1 --img-size 16 -b 8 --no-aux --output-dir runs --experiment "$1" --data-path "$2" \
        --val-split 0.2 --no-join-equal --summary-interval 0 "${@:3}" >"$1.out" 2>"$1.err" </dev/null
}
# A crash, a sanitizer's report and a hang are no refusals: exit codes of the program are below 10.
refused() { # WHAT STATUS
    (($2 > 0 && $2 < 10)) || complain "$1: exit $2"
}

# ---- every broken file is named by `data check`, with its reason
python3 "$source_dir/tests/support/broken_images.py" "$corpus" set/broken >expected || exit 1
mkdir set/whole
for i in {0..29}; do cp "$corpus/baseline.jpg" "set/whole/$i.jpg"; done
timeout 300 "$towers" data check set >check.out 2>&1
refused "data check" $?
while IFS=$'\t' read -r name message; do
    line=$(grep -F "/$name" check.out) || complain "data check does not name $name"
    grep -qE -- "$message" <<<"$line" || complain "$name: wanted '$message' in: $line"
done <expected
count=$(wc -l <expected)
((count >= 60)) || complain "only $count broken files"
grep -q "$count of $((count + 30)) images cannot be decoded" check.out || complain "data check counts: $(tail -1 check.out)"
timeout 300 "$towers" data info set >info.out 2>&1 || complain "data info of broken files: $(tail -1 info.out)"
timeout 300 "$towers" data convert set smaller >convert.out 2>&1
(($? < 10)) || complain "data convert: exit $?"
[[ $(grep -c "^skipped: .*broken/" convert.out) == "$count" ]] || complain "data convert does not list what it leaves out: $(tail -1 convert.out)"

# ---- a run stops at the first, or skips all of them and lists each
train stop set
refused "a run over broken files" $?
grep -qE "broken/[a-z0-9-]+\.[a-z]+" stop.err || complain "the run does not name a broken file: $(tail -2 stop.err)"
train skip set --bad-samples skip --epochs 1 || complain "--bad-samples skip: $(tail -3 skip.err)"
while IFS=$'\t' read -r name _; do
    grep -qF "/$name" runs/skip/bad-samples.csv || complain "bad-samples.csv does not list $name"
done <expected
"$weights" finite runs/skip/last.safetensors || complain "weights after skipped samples"

# ---- folders that cannot be looked through
tree() { # NAME: a whole class beside what the caller adds
    mkdir -p "$1/a" "$1/b"
    for i in 0 1 2 3 4; do cp "$corpus/baseline.jpg" "$1/a/$i.jpg" && cp "$corpus/rgb.png" "$1/b/$i.png"; done
}
reports() { # TREE MESSAGE
    timeout 60 "$towers" data check "$1" >tree.out 2>&1
    refused "$1" $?
    grep -qE -- "$2" tree.out || complain "$1: wanted '$2' in: $(cat tree.out)"
}
for name in circle loop nothing pipe device socket empty huge unread; do tree $name; done
ln -s .. circle/a/up
reports circle "a/up.*symbolic link to a folder that contains it"
ln -s again.jpg loop/a/again.jpg
reports loop "a/again.jpg.*circular"
ln -s nowhere nothing/a/x.jpg
reports nothing "a/x.jpg.*a broken symbolic link"
mkfifo pipe/a/x.jpg
reports pipe "a/x.jpg.*not a regular file"
ln -s /dev/zero device/a/x.png
reports device "a/x.png.*not a regular file"
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket/a/x.jpg")'
reports socket "a/x.jpg.*not a regular file"
mkdir empty/c
reports empty "empty/c.*no image"
truncate -s 5G huge/a/x.jpg
reports huge "a/x.jpg.*less than 4 GiB"
for i in 0 1 2 3 4; do mv unread/b/$i.png unread/b/$i.svg; done
reports unread "unread/b' has no image .*only other files: 5 \.svg: convert them, as by .mogrify .* or remove the folder"
mkdir -p classes/train classes/val
for class in a b; do cp -r unread/a classes/train/$class; done
for class in a x; do cp -r unread/a classes/val/$class; done
reports classes "val.*has a class 'x' that is missing in .*train"
deep=deep/a
tree deep
for i in {1..70}; do deep+=/$i; done
mkdir -p "$deep"
reports deep "nested more than 64 deep"
obey=(env) # root reads closed files nevertheless, unless it gives this up
[[ $(id -u) != 0 ]] || obey=(setpriv --bounding-set=-dac_override,-dac_read_search)
tree closed
chmod 0 closed/a/3.jpg
if "${obey[@]}" true 2>obey.err; then
    "${obey[@]}" timeout 60 "$towers" data check closed >tree.out 2>&1
    [[ $? == 6 ]] && grep -q 'a/3.jpg.*Permission denied' tree.out && grep -q '1 of 10 images cannot be read' tree.out ||
        complain "a file without permission: $(cat tree.out)"
else
    left_out "a file without permission: root may not give up rights here: $(cat obey.err)"
fi

# ---- folders that change under a run: a file that becomes another, and one that goes away
changed() { # NAME MESSAGE COMMAND: the run has taken a step before the command changes its data
    tree "$1"
    train "$1" "$1" --epochs 100000 --eval-interval 0 &
    local pid=$!
    until [[ -s runs/$1/metrics.jsonl ]] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    eval "$3"
    wait $pid
    refused "$1" $?
    grep -qE -- "$2" "$1.err" || complain "$1: wanted '$2' in: $(tail -3 "$1.err")"
}
changed shorter "shorter/a/[0-4].jpg.*has changed since" 'for i in 0 1 2 3 4; do head -c 100 '"$corpus"'/baseline.jpg >s && mv s shorter/a/$i.jpg; done'
changed gone "gone/[ab]/[0-4].*No such file" 'rm -r gone/a gone/b'
timeout 60 "$towers" data check shorter >tree.out 2>&1
refused "shorter, after the run" $?
[[ $(grep -c "shorter/a/[0-4].jpg: JPEG" tree.out) == 5 ]] || complain "a folder that has changed is looked through again: $(cat tree.out)"

check_end "$count broken files and a dozen folders are refused by name"
