#!/usr/bin/env bash
# Data at an address: sets of a server that goes well or badly (tests/support/http_server.py) and of nginx, through the cache. The same bits as
# from local shards, with a cold, a warm and an emptied cache; a warm cache asks nobody; one download for two processes; what breaks off goes
# on; what does not hold is named. The commands of docs/remote.md run. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1
IMAGES=300 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar tfrecord mds || exit 1

coproc python3 "$source_dir/tests/support/http_server.py" "$work/sets" "$work/requests"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port _ <&"${COPROC[0]}" || complain "the server does not start"
base=http://127.0.0.1:$port
tars='tar/set-{train-{000000..000005},val-000000}.tar'
records='tfrecord/{train-{00000..00005}-of-00006,validation-00000-of-00001}'

train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 --net-timeout 20 \
        --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null
}
same() { cmp -s <(tensors runs/local/last.safetensors) <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than from local shards"; }
gets() { grep -c "^/$1" requests; }

# ---- the same bits
train local --data-path sets/tar || complain "local shards: $(cat local.err)"
for set in "tar|$base/good/$tars" "tfrecord|$base/good/$records" "mds|$base/good/mds/{train,val}/"; do
    train "${set%%|*}" --data-path "${set#*|}" || complain "${set%%|*}: $(tail -n 3 "${set%%|*}.err")"
    same "${set%%|*}"
    grep -qF "${set#*|}" "runs/${set%%|*}/args.yaml" ||
        complain "${set%%|*}: args.yaml does not have the address: $(grep data-path "runs/${set%%|*}/args.yaml")"
done
cmp -s <(grep -h fingerprint runs/local/env.json) <(grep -h fingerprint runs/tar/env.json) || complain "another fingerprint than of local shards"
grep -q "of them, .* MB, were downloaded" tar.out tar.err || complain "nothing is said about the download: $(cat tar.out tar.err)"
grep -q '"ant"' runs/tar/env.json || complain "classes.txt beside the shards is not brought"
grep -q '"ant"' runs/mds/env.json || complain "classes.txt above the folders is not brought"

# ---- a warm cache asks nobody
: >requests
train warm --data-path "$base/good/$tars" || complain "a warm cache: $(cat warm.err)"
same warm
[[ ! -s requests ]] || complain "a warm cache asks: $(cat requests)"
grep -q "no network was needed" warm.out warm.err || complain "a warm cache is not said"
# but an object that is not as long as it was comes anew
truncate -s 1000 "$(find "$XDG_CACHE_HOME" -name set-train-000002.tar -path '*data/good/tar*')"
train mended --data-path "$base/good/$tars" || complain "a cache with a file that was cut: $(cat mended.err)"
same mended
[[ $(grep -vc '^HEAD' requests) == 1 ]] || complain "to mend one object, all of these are asked for: $(cat requests)"
# a resume in the middle of an epoch, with an empty cache
train part --data-path "$base/good/$tars" --max-steps 3 || complain "three steps: $(cat part.err)"
rm -rf "$XDG_CACHE_HOME"
"$towers" train --resume runs/part --max-steps 6 --output-dir runs --experiment whole >out 2>err </dev/null || complain "a resume with an empty cache: $(cat err)"
same whole
python3 - runs/whole/objects.json sets/tar <<'PYTHON' || complain "objects.json: $(cat runs/whole/objects.json)"
import json, os, sys
objects = json.load(open(sys.argv[1]))["objects"]
assert len(objects) == 8, objects # with classes.txt
for one in objects:
    assert one["bytes"] == os.path.getsize(os.path.join(sys.argv[2], one["address"].rsplit("/", 1)[1])), one
PYTHON

# ---- every command
for command in "info" "check"; do
    "$towers" data $command "$base/good/$tars" --cache-dir own >out 2>err || complain "data $command: $(cat err)"
done
grep -q "all 324 images can be decoded" out || complain "data check: $(cat out)"
"$towers" data show "$base/good/$tars" --cache-dir own -o sheet.png >out 2>err && [[ -s sheet.png ]] || complain "data show: $(cat err)"
"$towers" data convert "$base/good/mds/{train,val}/" converted --format tar --side 24 --cache-dir own >out 2>err && [[ $(find converted -name '*.tar' | wc -l) -gt 0 ]] ||
    complain "data convert: $(cat err)"
"$towers" eval runs/tar >there 2>err || complain "eval of a run: $(cat err)"
"$towers" eval runs/local >here 2>err || complain "eval of a local run: $(cat err)"
cmp -s <(grep -i accuracy here) <(grep -i accuracy there) || complain "eval: $(cat here there)"
"$towers" predict runs/tar "$base/good/tar/set-val-000000.tar" --csv --device cpu --cache-dir own >there 2>err || complain "predict: $(cat err)"
[[ $(wc -l <there) -ge 24 ]] || complain "predict: $(cat there)"

# a run remembers its cache, from whichever folder it is used
train caching --data-path "$base/good/$tars" --cache-dir rel --max-steps 3 || complain "a relative --cache-dir: $(cat caching.err)"
: >requests
mkdir -p elsewhere
(cd elsewhere && "$towers" eval ../runs/caching) >out 2>err || complain "eval of a run with a cache of its own: $(cat err)"
(cd elsewhere && "$towers" train --resume ../runs/caching --max-steps 4 --device cpu) >out 2>err || complain "a resume from another folder: $(cat err)"
[[ ! -s requests && ! -e elsewhere/rel ]] || complain "the cache of a run is forgotten: $(cat requests)"

# names with blanks and accents, of shards in an index and of tars
mkdir sets/names && cp -r sets/mds sets/names/mds
mv sets/names/mds/train/shard.00000.mds "sets/names/mds/train/a b é%41.mds"
sed -i '0,/shard.00000.mds/s//a b é%41.mds/' sets/names/mds/train/index.json
cp sets/tar/set-train-000000.tar "sets/names/my set-train-000000.tar"
cp sets/tar/set-val-000000.tar "sets/names/my set-val-000000.tar"
cp sets/tar/classes.txt sets/names
"$towers" data info sets/names/mds >here 2>err || complain "an index with plain names: $(cat err)"
"$towers" data info "$base/good/names/mds/{train,val}/" --cache-dir names >there 2>err || complain "an index with blanks in its names: $(cat err)"
grep -q '^training: 300 images' here && cmp -s <(grep -vE '^duplicates|MDS shards$' here) <(grep -vE '^duplicates|MDS shards$' there) || complain "names with blanks: another set: $(cat here there)"
[[ -n $(find names -name "a b é%41.mds" -path '*/data/*') ]] || complain "a name with blanks in the cache: $(find names -name '*.mds')"
"$towers" data info "$base/good/names/my%20set-{train,val}-000000.tar" --cache-dir names >out 2>err || complain "a list of names with blanks: $(cat err)"
[[ -n $(find names -name "my set-val-000000.tar" -path '*/data/*') ]] || complain "a tar with blanks in the cache: $(find names -name '*.tar')"

# ---- what goes badly and well in the end
for how in cutonce tagged busy limited hangup norange; do
    train "$how" --data-path "$base/$how/$tars" --cache-dir "at-$how" || complain "$how: $(tail -n 2 "$how.err")"
    same "$how"
done
grep -q '^/tagged/tar/set-train-000000.tar bytes=[0-9]*- "1"$' requests || complain "what broke off is not resumed on a condition: $(grep tagged requests)"
grep -q '^/cutonce/tar/set-train-000000.tar bytes=' requests && complain "a rest is asked for although nothing says of which version it would be"
# a beginning that an ended process has left
partial=$(find at-tagged -name partial)
[[ -z $(find "$partial" -type f) ]] || complain "partial files remain: $(find "$partial" -type f)"

# beginnings that nobody goes on with
mkdir -p "$partial/gone" sets/more && cp sets/tar/set-train-000001.tar sets/more
for name in gone/old.tar.0123456789abcdef gone/new.tar.0123456789abcdef held.tar.0123456789abcdef other.tar; do echo x >"$partial/$name"; done
touch -d '31 days ago' "$partial"/{gone/old.tar.0123456789abcdef,held.tar.0123456789abcdef,other.tar}
flock "$partial/held.tar.0123456789abcdef" sleep 60 &
holder=$!
"$towers" data info "$base/tagged/more/set-train-000001.tar" --cache-dir at-tagged >out 2>err || complain "one more object: $(cat err)"
kill "$holder"
[[ $(cd "$partial" && find . -type f | sort | tr '\n' ' ') == "./gone/new.tar.0123456789abcdef ./held.tar.0123456789abcdef ./other.tar " ]] ||
    complain "old beginnings: $(find "$partial" -type f)"

# ---- two processes, one download
: >requests
train first --data-path "$base/slow/$tars" --cache-dir both &
one=$!
train second --data-path "$base/slow/$tars" --cache-dir both &
wait "$one" || complain "the first of two: $(cat first.err)"
wait $! || complain "the second of two: $(cat second.err)"
same first
same second
[[ $(gets 'slow/tar/set-train-000003.tar ') == 1 ]] || complain "two processes download an object $(gets 'slow/tar/set-train-000003.tar ') times"

: >requests
# what the name of an object leads to goes before what is known of it is written: here another file of the same length
mkdir -p order/http/127.0.0.1:$port/data/good/tar
ln -s "$work/sets/tar/set-train-000001.tar" "order/http/127.0.0.1:$port/data/good/tar/set-train-000000.tar"
cp sets/tar/set-train-000000.tar kept.tar
truncate -s "$(stat -c %s sets/tar/set-train-000001.tar)" sets/tar/set-train-000000.tar
for call in first second; do "$towers" data info "$base/good/tar/set-train-000000.tar" --cache-dir order >out 2>err; done
cmp -s "order/http/127.0.0.1:$port/data/good/tar/set-train-000000.tar" sets/tar/set-train-000000.tar || complain "an old file stands under what is known of a new one: $(cat err)"
cp kept.tar sets/tar/set-train-000000.tar
# what has come of other versions goes with the whole object, unless it is locked; and one process at a time gives names
mkdir -p "turns/http/127.0.0.1:$port/partial/good/tar"
beside=turns/http/127.0.0.1:$port/partial/good/tar/set-train-000000.tar
touch "$beside".{0123456789abcdef,0123456789abcdee} "turns/http/127.0.0.1:$port/lock"
exec 8>"$beside.0123456789abcdee" 9>"turns/http/127.0.0.1:$port/lock"
flock 8 && flock 9
"$towers" data info "$base/good/tar/set-train-000000.tar" --cache-dir turns >out 2>err 8>&- 9>&- &
wait_until grep -q "^/good/tar/set-train-000000.tar" requests
sleep 1
[[ -z $(find turns -path '*/data/*' -type f) ]] || complain "an object gets its name while another process gives names"
flock -u 9
wait $! || complain "an object that waits for its name: $(cat err)"
[[ $(find turns -path '*/partial/*' -type f) == "$beside.0123456789abcdee" ]] || complain "what has come of other versions: $(find turns -path '*/partial/*' -type f)"
exec 8>&- 9>&-

# shards that an index lists have lines of progress of their own
"$towers" data info "$base/slow/mds/{train,val}/" --cache-dir lines >out 2>err || complain "a slow folder: $(cat err)"
grep -q "^bringing the data: .* of 8 objects" err || complain "no line of progress for the shards of a folder: $(cat err)"

# ---- what does not hold is named, and nothing of it stays under the object's name
refuses 6 "set-train-000006.tar: the server answers 404: it is not there" "$towers" data info "$base/good/tar/set-train-{000004..000006}.tar" --cache-dir bad --net-timeout 2
refuses 6 "answers 403: it is forbidden" "$towers" data info "$base/forbidden/$tars" --cache-dir bad --net-timeout 2
refuses 6 "and the same command goes on from there" "$towers" data info "$base/cut/$tars" --cache-dir bad --net-timeout 2
refuses 6 "nothing, or too little, came in time" "$towers" data info "$base/stuck/$tars" --cache-dir bad --stall 1 --net-timeout 2
# a byte now and then holds nobody for ever
refuses 6 "bytes (Operation too slow. Less than 1000 bytes/sec transferred the last 2 seconds); " timeout 60 "$towers" data info "$base/trickle/tar/set-train-000000.tar" --cache-dir trickle --stall 2 --net-timeout 6
grep -q "; [2-9] tries in [0-9.]* s; 1 of 2 objects are in" err || complain "a slow server is not tried again until --net-timeout: $(cat err)"
refuses 6 "cannot be resolved (DNS)" "$towers" data info "http://no-such-host.invalid/$tars" --cache-dir bad
refuses 3 "tar has changed while it was downloaded" "$towers" data info "$base/versions/$tars" --cache-dir bad
[[ -z $(find bad -path '*/partial/versions/*' -type f -size +0) ]] || complain "bytes of another version are kept"
refuses 6 "the server answers 204; expected 200" "$towers" data info "$base/none/$tars" --cache-dir bad --net-timeout 2
refuses 6 "encoded as 'gzip'" "$towers" data info "$base/encoded/$tars" --cache-dir bad --net-timeout 2
refuses 3 "says that it has 4611686018427387904 bytes" "$towers" data info "$base/vast/$tars" --cache-dir bad --net-timeout 2
refuses 6 "the server answers 405 to HEAD, which asks for length and version" "$towers" data info "$base/nohead/$tars" --cache-dir bad --net-timeout 2
https_proxy=$base refuses 6 ": the proxy answers 403: it is forbidden" "$towers" data info "https://store.invalid/set-train-000000.tar" --cache-dir bad --net-timeout 2
for list in "sets/tar/set-train-000000.tar::$base/good/tar/set-train-000001.tar" "$base/good/tar/set-train-000001.tar::sets/tar/set-train-000000.tar"; do
    refuses 2 "has addresses and 'sets/tar/set-train-000000.tar': expected" "$towers" data info "$list" --cache-dir bad
    refuses 2 "has addresses and 'sets/tar/set-train-000000.tar': expected" "$towers" train fashion_cnn --data-path "$list" --cache-dir bad --dry-run
done
refuses 2 "has addresses and '': expected" "$towers" data info "$base/good/tar/set-train-000001.tar::" --cache-dir bad
refuses 2 "user name or a password" "$towers" data info "http://me:hushhush@127.0.0.1:$port/good/a.tar" --cache-dir bad
grep -q hushhush err out && complain "a password is repeated"
refuses 2 "a query" "$towers" data info "$base/good/a.tar?X-Amz-Signature=hushhush" --cache-dir bad
grep -q hushhush err out && complain "a signature is repeated"
refuses 2 "HTTP:// is expected in small letters" "$towers" data info "HTTP://127.0.0.1:$port/good/a.tar"
refuses 2 "http://... is the address of a store" "$towers" eval "http://me:hushhush@127.0.0.1:$port/a.tar?sig=hushhush"
grep -q hushhush err out && complain "a secret of an address that is not taken is repeated"
for command in "train fashion_cnn" doctor version ""; do # where nobody expects an address
    refuses 2 "http://..." "$towers" $command "http://me:hushhush@127.0.0.1:$port/a.tar?sig=hushhush"
    grep -q hushhush err out && complain "towers $command repeats a secret: $(cat err)"
done
for address in "http://me:hu/shhush@127.0.0.1:$port/a.tar" "http://127.0.0.1:hushhush/a.tar" "http://127.0.0.1:65536/a.tar"; do
    refuses 2 "a port from 1 to 65535" "$towers" data info "$address" --cache-dir bad
    grep -q shhush err out && complain "a secret is repeated: $(cat err)"
done
for proxy in socks9://me:hushhush@127.0.0.1:9 http://me:hushhush@127.0.0.1:99999; do
    http_proxy=$proxy refuses 6 "(of the address of the proxy)" "$towers" data info "http://store.invalid/a.tar" --cache-dir bad --net-timeout 1
    grep -q hushhush err out && complain "the password of a proxy is repeated: $(cat err)"
done
# an index whose names lead out of its folder
cp -r sets/mds sets/evil
mkdir victims && echo keep >victims/index.json && echo keep >victims/shard.mds
echo gone >sets/shard.mds # what the server gives for the first name
for name in ../../../../../../../victims/shard.mds "$work/victims/shard.mds" ..%2f..%2fvictims%2fshard.mds .hidden; do
    for part in train val; do python3 - "$name" sets/mds/$part/index.json sets/evil/$part/index.json <<'PYTHON'; done
import json, sys
name, source, target = sys.argv[1:]
index = json.load(open(source))
index["shards"][0]["raw_data"]["basename"] = name
index["shards"][0]["raw_data"]["hashes"] = {"xxh64": "0"}
json.dump(index, open(target, "w"))
PYTHON
    rm -rf evil
    "$towers" data info "$base/good/evil/{train,val}/" --cache-dir evil --net-timeout 2 >out 2>err && complain "an index with '$name' is taken"
    "$towers" data info "$base/good/evil/{train,val}/" --cache-dir evil --net-timeout 2 >out 2>err && complain "an index with '$name' is taken the second time"
    grep -qx keep victims/shard.mds && [[ $(find evil -type f -path '*/data/*' ! -name index.json ! -name 'shard.*' ! -name classes.txt) == "" && $(find victims -type f | wc -l) == 2 ]] ||
        complain "an index with '$name' reaches other files: $(find evil victims -type f; cat err)"
done
refuses 2 "braces in its host" "$towers" data info "http://{a,b}/a.tar" --cache-dir bad
refuses 2 "begins with a dot" "$towers" data info "$base/good/../a.tar" --cache-dir bad
refuses 2 "has braces or '::' in its name" "$towers" data info "$base/good/$tars" --cache-dir 'b{a}d'
refuses 2 "set-train-000000.tar and 6 more objects are not in '$work/bad', and this call downloads nothing" "$towers" train fashion_cnn --data-path "$base/good/$tars" --cache-dir bad --dry-run
refuses 2 "set-train-000000.tar is not in '$work/bad'" "$towers" train fashion_cnn --data-path "$base/good/tar/set-train-000000.tar" --cache-dir bad --dry-run
twice=$base/good/tar/set-train-000000.tar
refuses 2 "set-train-000000.tar is not in '$work/bad'" "$towers" train fashion_cnn --data-path "$twice::$twice" --cache-dir bad --dry-run
[[ -z $(find bad -path '*/data/*' -type f) ]] || complain "there are objects of failed downloads: $(find bad -path '*/data/*' -type f)"
kill -0 "$server" || complain "the server has ended"

# an object that is not what the run began with
mkdir -p sets/moved && cp sets/tar/* sets/moved
moved="moved/${tars#tar/}"
train moved --data-path "$base/good/$moved" --cache-dir moved --max-steps 3 || complain "a set of its own: $(cat moved.err)"
cat sets/tar/set-train-000000.tar >sets/moved/set-train-000001.tar
head -c 10240 /dev/zero >>sets/moved/set-train-000001.tar
refuses 2 "set-train-000001.tar has changed since the run" "$towers" train --resume runs/moved --cache-dir anew --max-steps 6 --device cpu

# bytes that do not have the hashes of index.json leave the cache, and come again
cp -r sets/mds sets/hashed
hash_set() { sed -i "s/\(shard.00000.mds\"[^}]*\"hashes\": {\)[^}]*/\1\"xxh64\": \"$1\"/" sets/hashed/train/index.json; }
hash_set 00
"$towers" data check sets/hashed >out 2>err
hash_set "$(sed -n 's/.*its xxh64 is \([0-9a-f]*\), but.*/\1/p' out)"
"$towers" data check sets/hashed >out 2>err && grep -q "^1 hashes of shards are right" out || complain "index.json with a hash: $(cat out err)"
refuses 3 "It was removed from the cache" "$towers" data info "$base/wrong/hashed/{train,val}/" --cache-dir wrong
[[ -z $(find wrong -name shard.00000.mds) ]] || complain "damaged shards stay: $(find wrong -name '*.mds')"
"$towers" data info "$base/wrong/hashed/{train,val}/" --cache-dir wrong >out 2>err || complain "what was damaged does not come anew: $(cat err)"
# a shard that came again, by another call, after its folder was compared
cp -r sets/hashed sets/again
"$towers" data info "$base/good/again/{train,val}/" --cache-dir again >out 2>err || complain "a set with hashes: $(cat err)"
rm "$(find again -name shard.00000.mds -path '*/train/*')"
printf x | dd of=sets/again/train/shard.00000.mds bs=1 seek=3000 conv=notrunc 2>/dev/null
"$towers" data info "$base/good/again/train/shard.00000.mds" --cache-dir again >out 2>err
[[ -n $(find again -name shard.00000.mds -path '*/data/*/train/*') ]] || complain "a single shard does not come: $(cat err)"
refuses 3 "It was removed from the cache" "$towers" data info "$base/good/again/{train,val}/" --cache-dir again
# an index that was wrong when it came, and is right now
cp -r sets/mds sets/mended
sed -i '0,/shard.00000.mds/s//shard.00099.mds/' sets/mended/train/index.json
refuses 6 "shard.00099.mds: the server answers 404" "$towers" data info "$base/good/mended/{train,val}/" --cache-dir mended-set --net-timeout 2
cp sets/mds/train/index.json sets/mended/train
"$towers" data info "$base/good/mended/{train,val}/" --cache-dir mended-set >out 2>err || complain "an index that was mended on its server: $(tail -n 2 err)"
printf '<html>' >sets/mended/val/index.json
refuses 3 "removed from the cache" "$towers" data info "$base/good/mended/{val,train}/" --cache-dir portal
cp sets/mds/val/index.json sets/mended/val
"$towers" data info "$base/good/mended/{train,val}/" --cache-dir portal >out 2>err || complain "an index in whose place a page came: $(tail -n 2 err)"
# names of classes that came to the server later
mkdir sets/later && cp sets/tar/*.tar sets/later
"$towers" data info "$base/good/later/set-train-000000.tar" --cache-dir later >out 2>err || complain "shards without names: $(cat err)"
cp sets/tar/classes.txt sets/later
"$towers" data info "$base/good/later/set-train-{000000..000001}.tar" --cache-dir later >out 2>err && [[ -n $(find later -path '*/data/*classes.txt') ]] ||
    complain "classes.txt that came later is not brought: $(cat err)"
[[ $(gets wrong/hashed/train/shard.00000.mds) == 2 ]] || complain "a damaged shard is asked for $(gets wrong/hashed/train/shard.00000.mds) times"

# ---- the commands of the page
mkdir sets/pets
for file in sets/tar/set-*; do cp "$file" "sets/pets/pets-${file#*set-}"; done
cp sets/tar/classes.txt sets/pets
cp -r sets/mds sets/pets-mds
sed -n '/^```sh$/,/^```$/p' "$source_dir/docs/remote.md" | grep '^towers ' | grep -v s3:// | sed "s|https://data.example.org|$base/good|; s|^towers|\"\$towers\"|" >page
[[ $(wc -l <page) -ge 5 ]] || complain "docs/remote.md has only $(wc -l <page) commands"
while read -r line; do (eval "$line") >out 2>err </dev/null || complain "docs/remote.md: $line: exit $?: $(tail -n 3 err)"; done <page

# ---- the disk is too small
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir small
    unshare -m bash -c "mount -t tmpfs -o size=64k none small && exec \"$towers\" data info '$base/good/$tars' --cache-dir small" >out 2>err
    [[ $? == 6 ]] && grep -q "is larger than\|are to come into 'small', but its disk has" err || complain "a small disk: $(cat err)"
else
    left_out "a disk that is too small: mounting a small tmpfs wants root"
fi

check_end "data at an address train as local ones do, and end by name where they cannot"
