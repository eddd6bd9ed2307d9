#!/usr/bin/env bash
# towers fetch and --pretrained NAME against an HTTP server on loopback: whole, cut off, slow, stuck, redirected and missing files, wrong
# digests, too many bytes, headers that lie, TLS and what leads out of it; the list, --dry-run, and tables of weights that do not hold.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1
cache=$XDG_CACHE_HOME/towers/weights
mkdir "$work/files"

# a network's own weights as the published file, under a name with the beginning of their digest, and one of 3 MB
"$towers" train fashion_cnn --dataset synthetic --max-steps 1 --batch-size 8 --eval-interval 0 --classes 3 --quiet --experiment first 2>/dev/null ||
    complain "no run to publish"
digest=$(sha256sum runs/first/last.safetensors | cut -c 1-64)
name=tiny-${digest:0:8}.safetensors
cp runs/first/last.safetensors "files/$name"
head -c 3000000 /dev/urandom >files/big
big_digest=$(sha256sum files/big | cut -c 1-64)
big=big-${big_digest:0:12}.bin
mv files/big "files/$big"
head -c 12000000 /dev/urandom >files/long
long_digest=$(sha256sum files/long | cut -c 1-64)
long=long-${long_digest:0:8}.bin
mv files/long "files/$long"
certificate=$source_dir/tests/support/loopback.pem

coproc python3 "$source_dir/tests/support/http_server.py" "$work/files" "$work/requests" "$certificate"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port safe_port <&"${COPROC[0]}" || complain "the server does not start"
base=http://127.0.0.1:$port safe=https://127.0.0.1:$safe_port

# what --dry-run would download it says, and downloads nothing; so does --print-config
for how in --dry-run --print-config; do
    XDG_CACHE_HOME=$work/empty "$towers" train resnet18 --dataset synthetic --pretrained imagenet --mirror "$base" $how >"$out" 2>"$err" ||
        complain "train --pretrained imagenet $how: $(cat "$err")"
    [ ! -e "$work/empty" ] && ! grep -q resnet18 "$work/requests" 2>/dev/null || complain "train $how downloads"
    [ $how = --print-config ] || grep -qF "weights        to be downloaded: 46.8 MB from $base/resnet18-f37072fd.pth (BSD-3-Clause" "$out" ||
        complain "train --dry-run does not say what it would download: $(head -n 3 "$out")"
done

# get ADDRESS ARGUMENT...: fetch over HTTP, which demands all digits
get() {
    local file=${1##*/}
    "$towers" fetch "$1" --sha256 "$(sha256sum "$work/files/$file" | cut -c 1-64)" "${@:2}" >"$out" 2>"$err"
}

# fetched ADDRESS FILE ARGUMENT...: it succeeds, prints the path, and the file is right
fetched() {
    local address=$1 file=$2
    shift 2
    rm -rf "$cache"
    get "$address" "$@" || complain "$address: exit $?: $(cat "$err")"
    [[ $(cat "$out") == "$cache/$file" ]] || complain "$address: printed $(cat "$out")"
    cmp -s "$cache/$file" "$work/files/$file" || complain "$address: another file"
    [[ ! -e $cache/$file.part ]] || complain "$address: the partial file remains"
}

# refused STATUS TEXT ARGUMENT...
refused() {
    local wanted=$1 text=$2 status
    shift 2
    timeout 60 "$towers" "$@" >"$out" 2>"$err"
    status=$?
    [[ $status == "$wanted" ]] || complain "towers $*: exit $status instead of $wanted: $(cat "$err")"
    grep -qF -- "$text" "$err" || complain "towers $*: wanted '$text', found: $(cat "$err")"
    [[ ! -s $out ]] || complain "towers $*: wrote $(cat "$out")"
}

# A home that is no whole path would be another folder in each working directory, so nothing is made there.
for home in home . ""; do
    for where in "" cache; do
        XDG_CACHE_HOME=$where HOME=$home refused 2 "there is no place for downloads: neither XDG_CACHE_HOME nor HOME is the whole path" fetch \
            "$base/good/$name" --sha256 "$digest"
    done
done
[[ ! -e home && ! -e .cache && ! -e cache/towers ]] || complain "a home that is no whole path makes folders: $(ls -A)"

fetched "$base/good/$name" "$name"
fetched "$base/good/$big" "$big"
rm "$cache/$big"
touch -d '31 days ago' "$cache/old-12345678.bin.part" "$cache/old-12345678.bin"
touch "$cache/new-12345678.bin.part"
get "$base/good/$big" || complain "a file anew: $(cat "$err")"
[[ $(cd "$cache" && echo *-12345678*) == "new-12345678.bin.part old-12345678.bin" ]] || complain "old beginnings: $(ls "$cache")"
rm "$cache"/*-12345678*
fetched "$base/redirect/$big" "$big"
fetched "$base/norange/$big" "$big"
fetched "$base/cutonce/$big" "$big"
fetched "$base/busy/$name" "$name"
fetched "$base/slow/$big" "$big"
fetched "$base/hangup/$name" "$name"
fetched "$base/limited/$name" "$name"
grep -q "answers 429: too many requests; trying again in 1.0 s" "$err" || complain "Retry-After is not waited for: $(cat "$err")"
# what broke off goes on if it is still the same version; else the bytes of two would be joined
fetched "$base/tagged/$big" "$big"
grep -q "^/tagged/$big bytes=1500000- \"1\"$" requests || complain "a version is not resumed: $(grep tagged requests)"
fetched "$base/changed/$big" "$big"
grep -q "^/changed/$big bytes=1500000- \"1\"$" requests || complain "a changed version is not noticed: $(grep changed requests)"
fetched "$base/good/$name" "$name"
grep -q "^/cutonce/$big bytes=1500000-" requests || complain "a broken transfer is not resumed: $(grep cutonce requests)"
grep -q 'downloading' "$err" || complain "nothing is said about the download"

# what is in the cache is not asked for again, unless it is damaged
: >requests
get "$base/good/$name" || complain "the cached file: $(cat "$err")"
[[ ! -s requests ]] || complain "a cached file is downloaded again"
printf x >>"$cache/$name"
get "$base/good/$name" --quiet || complain "a damaged cached file: $(cat "$err")"
cmp -s "$cache/$name" "files/$name" || complain "a damaged file is taken from the cache"
[[ ! -s $err ]] || complain "--quiet says $(cat "$err")"

# an interrupted call goes on where it ended, also with another server that begins anew
for how in good norange; do
    rm -rf "$cache" && mkdir -p "$cache" && head -c 1000000 "files/$big" >"$cache/$big.part"
    : >requests
    get "$base/$how/$big" || complain "resuming, $how: $(cat "$err")"
    cmp -s "$cache/$big" "files/$big" || complain "resuming, $how: another file"
    grep -q 'bytes=1000000-' requests || complain "resuming, $how: asked for everything"
done
rm -rf "$cache" && mkdir -p "$cache" && cp "files/$big" "$cache/$big.part" # all is there but the name
get "$base/good/$big" || complain "a whole partial file: $(cat "$err")"

# a partial file that is damaged, whole, or too long begins anew, once; what the server then sends is its own fault
for how in 1000000 3000000 4000000; do
    rm -rf "$cache" && mkdir -p "$cache" && head -c "$how" /dev/urandom >"$cache/$big.part"
    : >requests
    get "$base/good/$big" || complain "a damaged partial file of $how bytes: $(cat "$err")"
    cmp -s "$cache/$big" "files/$big" || complain "a damaged partial file of $how bytes: another file"
    grep -q -- ' -$' requests || complain "a damaged partial file of $how bytes: not begun anew: $(cat requests)"
done
rm -rf "$cache" && mkdir -p "$cache" && head -c 100 /dev/urandom >"$cache/$name.part"
: >requests
refused 3 "is not the expected file: its SHA-256 is $digest" fetch "$base/good/$name" --sha256 "${digest//[0-9]/0}"
[[ $(wc -l <requests) == 2 ]] || complain "a wrong file behind a damaged one: $(cat requests)"

# another process gives the partial file its name between its opening and its lock
shim=$(dirname "$towers")/tests/fail_calls.so
if [[ -f $shim ]]; then
    for content in "files/$big" files/"$name"; do
        rm -rf "$cache" && mkdir -p "$cache" && cp "$content" "$cache/$big.part"
        : >requests
        LD_PRELOAD=$shim FAIL_CALL=lock:1 get "$base/good/$big" || complain "a partial file that is published meanwhile: $(cat "$err")"
        cmp -s "$cache/$big" "files/$big" || complain "a partial file that is published meanwhile: another file"
        [[ $content != "files/$big" || ! -s requests ]] || complain "a published file is downloaded again: $(cat requests)"
    done
else
    left_out "a partial file that is published meanwhile: no fail_calls.so (a build with sanitizers)"
fi

# bad ends: nothing is left under the file's name
rm -rf "$cache"
refused 6 "run the same command again to resume" fetch "$base/cut/$big" --sha256 "$big_digest" --net-timeout 2
[[ -s $cache/$big.part ]] || complain "the beginning of a broken download is not kept"
refused 6 "the server answers 404: it is not there; check the address" fetch "$base/missing/$name" --sha256 "$digest"
refused 6 "the server answers 403: it is forbidden" fetch "$base/forbidden/$name" --sha256 "$digest"
refused 6 "the server answers 503: the server is busy; it asks to wait 100 s, longer than --net-timeout allows" fetch "$base/later/$name" --sha256 "$digest" --net-timeout 20
refused 6 "the name of the host cannot be resolved (DNS)" fetch "http://no-such-host.invalid/$name" --sha256 "$digest" # a name that never answered: soon
refused 6 "cannot download" fetch "$base/loop/$name" --sha256 "$digest"
refused 6 "cannot download" fetch "$base/file/$name" --sha256 "$digest"
# one that does not resume and breaks off far in is not asked for ever
: >requests
refused 6 "the server begins anew each time" fetch "$base/cutfar/$long" --sha256 "$long_digest" --quiet --net-timeout 3
[[ $(wc -l <requests) -le 6 ]] || complain "a server that always breaks off is asked $(wc -l <requests) times"
rm -rf "$cache"
refused 6 "nothing, or too little, came in time after" fetch "$base/stuck/$big" --sha256 "$big_digest" --stall 1 --net-timeout 2
rm -rf "$cache"
refused 3 "is not the expected file: its SHA-256 is $digest" fetch "$base/good/$name" --sha256 "${digest//[0-9]/0}"
refused 3 "is not the expected file" fetch "$base/long/$name" --sha256 "$digest"
[[ -z $(find "$cache" -type f) ]] || complain "a wrong file is kept: $(find "$cache" -type f)"
get "$base/lies/$big"
[[ $? -le 6 ]] || complain "headers that lie: $(cat "$err")"
[[ ! -e $cache/$big ]] || cmp -s "$cache/$big" "files/$big" || complain "headers that lie: another file is kept"
refused 6 "cannot download" fetch "http://127.0.0.1:1/$name" --sha256 "$digest"

# https: with a certificate that is trusted, and never on to http. A few digits of a digest are enough only there
refused 6 "cannot download" fetch "$safe/good/$name"
export CURL_CA_BUNDLE=$certificate
rm -rf "$cache"
"$towers" fetch "$safe/good/$name" >"$out" 2>"$err" || complain "over TLS: $(cat "$err")"
cmp -s "$cache/$name" "files/$name" || complain "over TLS: another file"
fetched "$base/other/$name" "$name"
rm -rf "$cache"
: >requests
refused 6 "it is redirected from https to http" fetch "$safe/other/$name" --sha256 "$digest"
[[ $(wc -l <requests) == 1 && ! -e $cache/$name ]] || complain "https leads to http: $(cat requests)"
: >requests
refused 6 "it is redirected from https to http" fetch "$base/around/$name" --sha256 "$digest"
grep -q "^/good/" requests && complain "https leads to http on the way: $(cat requests)"
refused 6 "cannot download" fetch "https://localhost:$safe_port/good/$name" # which the certificate does not name
refused 2 "only 8 of the 64 digits of its SHA-256 are known, too few for a file over http" fetch "$base/good/$name"
refused 2 "too few for a file over http" fetch inception_v4 --mirror "$base/good"
python3 - "$source_dir" <<'PYTHON' || complain "the digests of the table"
import json, re, sys
rows = json.load(open(f"{sys.argv[1]}/inception/models/weights.json"))
assert all(row["address"].startswith("https://") for row in rows), "an address without https"
short = {row["model"] for row in rows if len(row["sha256"]) < 64}
page = re.search(r"Of ([^.]*) only the first digits of the SHA-256 are published", open(f"{sys.argv[1]}/docs/commands/fetch.md").read())
assert short == set(re.findall("`(\\w+)`", page[1])), f"docs/commands/fetch.md names other weights than {short}"
PYTHON
refused 2 "cannot be verified; give its digest with --sha256" fetch "$base/good/plain.bin"
refused 2 "does not end in the name of a file" fetch "$base/good/"
refused 2 "does not end in the name of a file" fetch "$base/good/.hidden-12345678.bin"
for secret in "http://me:hush@127.0.0.1/a-12345678.bin" "http://me:hu/sh@127.0.0.1/a-12345678.bin" "$base/good/a-12345678.bin?hush" "$base/good/a-12345678.bin#hush"; do
    refused 2 "an address with a user name, a password or a query is not taken" fetch "$secret"
    grep -q hu.*sh "$out" "$err" && complain "a secret is repeated: $(cat "$out" "$err")"
    refused 2 "--mirror: an address with a user name, a password or a query is not taken" fetch resnet18 --mirror "$secret"
    grep -q hu.*sh "$out" "$err" && complain "a secret is repeated: $(cat "$out" "$err")"
done
refused 2 "digest with --sha256" fetch "$base/good/@scope/package@1.0/plain.bin"
refused 6 "the server answers 404" fetch resnet18 --mirror "$base/good/@scope"
refused 2 "expected 64 hexadecimal digits" fetch "$base/good/$name" --sha256 1234
known="are known, only resnet18:imagenet, resnet34:imagenet, resnet50:imagenet, resnet50:imagenet-v2, resnet101:imagenet, mobilenet_v3_large:imagenet, mobilenet_v3_small:imagenet, efficientnet_b0:imagenet, efficientnet_lite0:imagenet, convnext_tiny:imagenet, inception_v3:imagenet, googlenet:imagenet, inception_v4:imagenet, inception_resnet_v2:imagenet, xception:imagenet: choose one of these"
refused 2 "no published weights 'none' of resnet18 $known" fetch resnet18:none
refused 2 "no published weights of fashion_cnn $known" fetch fashion_cnn
refused 2 "no published weights 'imagenet' of fashion_cnn $known" train fashion_cnn --pretrained imagenet --dataset synthetic
refused 2 "no published weights 'imagenet' of fashion_cnn $known" eval fashion_cnn --weights imagenet --dataset synthetic
refused 2 "unknown model 'resnet19'" fetch resnet19
refused 2 "--dry-run needs weights" fetch --dry-run
(mkdir -p "$cache" && exec 9>"$cache/$name.part" && flock 9 && refused 6 "another process is downloading" fetch "$base/good/$name" --sha256 "$digest"
    exit $((failures > 0))) || failures=$((failures + 1))

# the list, the commands for another machine, and a table of one's own
"$towers" fetch >"$out" 2>"$err" || complain "the list: $(cat "$err")"
for row in resnet18:imagenet resnet50:imagenet resnet50:imagenet-v2 efficientnet_b0:imagenet convnext_tiny:imagenet inception_v3:imagenet googlenet:imagenet inception_v4:imagenet inception_resnet_v2:imagenet xception:imagenet; do
    grep -q "^$row " "$out" || complain "the list lacks $row"
    "$towers" fetch "$row" --dry-run >"$work/commands" || complain "--dry-run of $row"
    grep -q '^curl -fL' "$work/commands" && grep -q '^sha256sum .* | grep ' "$work/commands" || complain "--dry-run of $row: $(cat "$work/commands")"
done
"$towers" fetch --json | python3 -c 'import json, sys; rows = [json.loads(line) for line in sys.stdin]; assert all(r["address"].rsplit("/", 1)[1].rsplit("-", 1)[1][:8] == r["sha256"][:8] and not r["cached"] for r in rows) and len(rows) >= 7' ||
    complain "the list as JSON"
rm -rf "$cache"
"$towers" fetch "$base/good/$name" --dry-run >"$work/commands" && bash "$work/commands" >/dev/null 2>"$err" || complain "the commands of --dry-run: $(cat "$err")"
cmp -s "$cache/$name" "files/$name" || complain "the commands of --dry-run bring another file"
get "$base/good/$name" --json && python3 -c 'import json, sys; row = json.load(open(sys.argv[1])); assert row["cached"] and row["path"] == sys.argv[2], row' "$out" "$cache/$name" ||
    complain "--json of a file: $(cat "$out" "$err")"
"$towers" fetch --json --mirror $'http://a\xff' | python3 -c 'import json, sys; assert all(json.loads(line) for line in sys.stdin)' || complain "the list as JSON with a mirror that is no UTF-8"
XDG_CACHE_HOME="$work/a'b c" "$towers" fetch "http://x/'\$(touch%20$work/run)'/$name" --dry-run >"$work/commands"
(curl() { printf '%s\n' "$@" >"$work/said"; }; . "$work/commands") >/dev/null 2>&1
grep -qF "$work/a'b c/towers/weights/$name" "$work/said" && grep -qF "x/'\$(touch%20" "$work/said" || complain "quotes in --dry-run: $(cat "$work/commands")"

table() {
    cat >table.json <<JSON
[{"model": "fashion_cnn", "name": "tiny", "title": "a test", "license": "none", "address": "$base/good/$name",
  "bytes": $(stat -c %s "files/$name"), "sha256": "$digest", "class_names": ["coat", "hat", "shoe"],
  "settings": {"mean": "0.25", "std": "0.5"}}]
JSON
}
table
rm -rf "$cache"
"$towers" fetch fashion_cnn:tiny --weights-table table.json >"$out" 2>"$err" || complain "a table of one's own: $(cat "$err")"
TOWERS_WEIGHTS_TABLE=table.json "$towers" fetch fashion_cnn >"$out" 2>"$err" || complain "the table by environment: $(cat "$err")"
# names of ImageNet's classes, with timm's background or without; its folders, named by ids of WordNet, are these classes
mkdir -p imagenet/n01440764 imagenet/n15075141
for file in imagenet/n01440764/{1..4}.pgm imagenet/n15075141/{1..3}.pgm; do { printf 'P5 28 28 255\n'; head -c 784 /dev/urandom; } >"$file"; done
for names in imagenet imagenet-background; do
    classes=$((1000 + (${#names} > 8)))
    "$towers" train fashion_cnn --data-path imagenet --val-split 0.3 --max-steps 1 --batch-size 2 --eval-interval 0 --classes $classes --quiet --experiment $names 2>"$err" || complain "no run of $classes classes: $(cat "$err")"
    python3 - runs/$names/last.safetensors "$work/files/$names.safetensors" <<'PYTHON' # as others write it, almost without a word about itself
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
head["__metadata__"] = {"channels": "3"}
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
PYTHON
    cat >named.json <<JSON
[{"model": "fashion_cnn", "name": "named", "title": "a test", "license": "none", "address": "$base/good/$names.safetensors",
  "sha256": "$(sha256sum "files/$names.safetensors" | cut -c 1-64)", "class_names": "$names", "settings": {"mean": "0", "std": "1"}}]
JSON
    "$towers" eval fashion_cnn --weights named --weights-table named.json --data-path imagenet --class-scores scores.csv --quiet >"$out" 2>"$err" || complain "$names: ImageNet's folders: $(cat "$err")"
    python3 - $((classes - 1000)) <<'PYTHON' || complain "$names: the labels of ImageNet's folders: $(grep -v ',0,[0-9]*,0$' scores.csv)"
import csv, sys
rows = list(csv.DictReader(open("scores.csv")))
assert len(rows) == 1000 + int(sys.argv[1])
assert [(int(row["class"]), row["name"], row["images"]) for row in rows if row["images"] != "0"] == \
    [(int(sys.argv[1]), "n01440764", "4"), (999 + int(sys.argv[1]), "n15075141", "3")]
PYTHON
    "$towers" predict fashion_cnn --weights named --weights-table named.json imagenet --json --top 1000 >"$out" 2>"$err" || complain "$names: predict: $(cat "$err")"
    python3 - "$out" "$source_dir/inception/models/imagenet.txt" $((classes - 1000)) <<'PYTHON' || complain "$names: other names: $(head -c 300 "$out")"
import json, sys
names = ["background"] * int(sys.argv[3]) + [line.split(" ", 1)[1] for line in open(sys.argv[2]).read().splitlines()]
rows = [json.loads(line)["predictions"] for line in open(sys.argv[1])]
assert len(rows) == 7 and all(one["name"] == names[one["class"]] for row in rows for one in row) and "Italian greyhound" in names
PYTHON
done
refused 2 "imagenet has the classes n01440764, n15075141, but the network of files/imagenet.safetensors has no names of classes" \
    eval fashion_cnn --weights files/imagenet.safetensors --classes 1000 --data-path imagenet
"$towers" eval fashion_cnn --weights files/imagenet.safetensors --classes 1000 --data-path imagenet --match-classes number >"$out" 2>"$err" || complain "weights without names: $(cat "$err")"
# the beginning of a digest, where no more of it is published
other_end=${digest:0:7}$([[ ${digest:7:1} == 0 ]] && echo 1 || echo 0)
for begins in "${digest:0:8}" "${digest:0:63}" "$other_end"; do
    sed "s|$digest|$begins|; s|$base|$safe|" table.json >begins.json
    rm -rf "$cache"
    if [[ $begins == "$other_end" ]]; then
        refused 3 "is not the expected file: its SHA-256 is $digest, but $other_end... was expected" fetch fashion_cnn --weights-table begins.json --quiet
        mkdir -p "$cache" && cp "files/$name" "$cache/$name" # one in the cache is none either
        refused 3 "is not the expected file" fetch fashion_cnn --weights-table begins.json --quiet
    else
        "$towers" fetch fashion_cnn --weights-table begins.json >"$out" 2>"$err" || complain "the beginning of a digest: $(cat "$err")"
    fi
done
rm -rf "$cache"
"$towers" train fashion_cnn --pretrained tiny --weights-table table.json --dataset synthetic --classes 3 --max-steps 1 --batch-size 8 \
    --eval-interval 0 --experiment second >"$out" 2>"$err" || complain "--pretrained NAME: $(cat "$err")"
cmp -s "$cache/$name" "files/$name" || complain "--pretrained NAME downloads nothing"
# a file by torch.save is fetched and read as the safetensors are
python3 "$source_dir/tests/support/torch_files.py" of "files/$name" || complain "no file as torch.save writes it"
torch_digest=$(sha256sum "files/$name.pth" | cut -c 1-64)
torch_name=tiny-${torch_digest:0:8}.pth
mv "files/$name.pth" "files/$torch_name"
sed -e "s|$name|$torch_name|; s|\"bytes\": [0-9]*|\"bytes\": $(stat -c %s "files/$torch_name")|; s|$digest|$torch_digest|; s|\"0[.]25\"|\"0\"|; s|\"0[.]5\"|\"1\"|" table.json >torch.json
: >requests
"$towers" train fashion_cnn --pretrained tiny --weights-table torch.json --dataset synthetic --classes 3 --max-steps 1 --batch-size 8 \
    --eval-interval 0 --experiment torch >"$out" 2>"$err" || complain "--pretrained NAME of a .pth: $(cat "$err")"
grep -q "^/good/$torch_name " requests || complain "the .pth was not asked for: $(cat requests)"
cmp -s "$cache/$torch_name" "files/$torch_name" || complain "another .pth than the server's"
cmp -s <(tensors runs/torch/last.safetensors) <(tensors runs/second/last.safetensors) || complain "a .pth trains other weights than safetensors"

refused 6 "the server answers 404" fetch resnet18 --mirror "$base/missing"
sed 's/"bytes": [0-9]*/"bytes": 1000/' table.json >small.json
rm -rf "$cache"
refused 3 "sends more than the 1000 bytes" fetch fashion_cnn --weights-table small.json --quiet

# tables that do not hold: each is refused with its row
python3 - <<'PYTHON'
import json
row = json.load(open("table.json"))[0]
bad = {"model": ["resnet19", 7, ""], "name": ["a b", "x" * 65, "\u0000a"], "title": ["", "a\nb"], "license": [None],
       "address": ["ftp://a/b", "http://a/", "http://a/..", "file:///etc/passwd", "http://a/b c", "http://a/\u001b[31m"],
       "sha256": ["0" * 7, "0" * 65, "G" * 64, "A" * 64], "bytes": [0, -1, 1.5, "7"], "class_names": ["other", [1], ["a\nb"]],
       "settings": [[], {"lr": "1"}, {"mean": "0.5\nlr: 1"}, {"mean": 0.5}, {"std": ""}], "more": [1]}
count = 0
for key, values in bad.items():
    for value in values:
        json.dump([dict(row), dict(row, **{key: value})], open(f"bad-{count}.json", "w"))
        count += 1
for key in ("model", "name", "title", "license", "address", "sha256"):
    json.dump([{k: v for k, v in row.items() if k != key}], open(f"bad-{count}.json", "w"))
    count += 1
for text in ("", "{}", "[1]", "[[]]", "[", '[{"model": "a", "model": "b"}]', "[" * 5000):
    open(f"bad-{count}.json", "w").write(text)
    count += 1
PYTHON
for file in bad-*.json; do refused 2 "$file" fetch --weights-table "$file"; done

check_end "downloads go on, end or are refused as they should"
