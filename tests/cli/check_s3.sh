#!/usr/bin/env bash
# Data in a store with the interface of S3: tests/support/s3_server.py, which compares signatures, its own with those that AWS has published, and
# moto, which boto3 has filled. The same bits as from local shards; keys, region and endpoint from the environment and from profiles; public
# buckets; refusals that say what to do; keys of objects with odd characters. No file of a run or a cache, no output and no command line has a
# secret. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/moto.sh"
needs_python
unset "${!AWS_@}"
export HOME=$work/home XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1,localhost,.localhost
mkdir home said
IMAGES=300 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar mds || exit 1
odd="a b+c=é(g)'h!%41*~.tar"
cp sets/tar/set-val-000000.tar "sets/$odd"

id=AKIDOFATEST0 secret='hush/secret+Key=1hush' token='hush/token+Of==hush'
coproc STORE { S3_ID=$id S3_SECRET=$secret S3_TOKEN=$token exec python3 "$source_dir/tests/support/s3_server.py" "$work/sets" "$work/requests"; }
server=$STORE_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port <&"${STORE[0]}" || complain "the store does not start"
base=http://127.0.0.1:$port
tars='tar/set-{train-{000000..000005},val-000000}.tar'
one=tar/set-val-000000.tar

keyed() { AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret "$@"; }
at_store() { AWS_ENDPOINT_URL=$base keyed "$@"; }
calls=0
info() { # ADDRESS ARGUMENT...: into a cache of its own; all that is said stays for the search
    calls=$((calls + 1))
    "$towers" data info "$1" --net-timeout 3 --cache-dir "fresh/$calls" "${@:2}" >"said/$calls.out" 2>"said/$calls.err" </dev/null
    local status=$?
    cat "said/$calls.err" >&2
    return $status
}
comes() { info "$@" 2>err || complain "$*: $(tail -n 2 err)"; }
train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 --net-timeout 20 \
        --summary-interval 0 --output-dir runs --experiment "$@" >"said/$1.out" 2>"said/$1.err" </dev/null
}
same() { cmp -s <(tensors runs/local/last.safetensors) <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than from local shards"; }

# ---- shards of several kinds are refused before any of them comes
: >requests
for several in "s3://pets/mds/train/::s3://pets/tar/" "s3://pets/tar/::s3://pets/mds/train/" "s3://pets/mds/train/::s3://pets/$one"; do
    at_store refuses 3 "but others are " info "$several"
    [[ -z $(find "fresh/$calls" -name '*.tar' -o -name '*.mds') ]] || complain "$several: shards have come: $(find "fresh/$calls")"
done

# ---- the same bits; a warm cache needs neither keys nor store
train local --data-path sets/tar || complain "local shards: $(cat said/local.err)"
at_store train tars --data-path "s3://pets/$tars" || complain "tars: $(tail -n 3 said/tars.err)"
same tars
at_store train mds --data-path "s3://pets/mds/{train,val}/" || complain "MDS: $(tail -n 3 said/mds.err)"
same mds
grep -q '"address": "s3://pets/tar/set-train-000003.tar"' runs/tars/objects.json || complain "objects.json: $(cat runs/tars/objects.json)"
: >requests
AWS_ENDPOINT_URL=$base train warm --data-path "s3://pets/$tars" || complain "a warm cache: $(tail -n 3 said/warm.err)"
same warm
AWS_ENDPOINT_URL=$base AWS_PROFILE=absent train without --data-path "s3://pets/$tars" || complain "a warm cache and no keys: $(tail -n 3 said/without.err)"
[[ ! -s requests ]] || complain "a warm cache asks: $(cat requests)"
"$towers" eval runs/mds >said/eval_mds.out 2>said/eval_mds.err || complain "a run whose store stood in the environment: $(tail -n 3 said/eval_mds.err)"
[[ ! -s requests ]] || complain "eval of a warm run asks: $(cat requests)"
# a run that goes on elsewhere, from the cache and the store that it remembers
keyed train part --data-path "s3://pets/$tars" --s3-endpoint "$base/" --max-steps 3 || complain "three steps: $(tail -n 3 said/part.err)"
rm -rf cache/towers/data
keyed "$towers" train --resume runs/part --max-steps 6 --output-dir runs --experiment whole >said/whole.out 2>said/whole.err </dev/null || complain "a resume with an empty cache: $(tail -n 3 said/whole.err)"
same whole
: >requests
"$towers" eval runs/part >said/eval.out 2>said/eval.err || complain "eval of a run from a store: $(cat said/eval.err)"
[[ ! -s requests ]] || complain "eval asks although all is in the cache: $(cat requests)"
at_store train cut --data-path "s3://cutonce/$tars" || complain "a store that breaks off: $(tail -n 3 said/cut.err)"
same cut
grep -q '^GET .* /cutonce/tar/set-train-000000.tar bytes=[0-9]*- "[0-9a-f]*" signed$' requests || complain "what broke off is not resumed on a condition: $(grep cutonce requests)"

# ---- keys, region, endpoint
AWS_ENDPOINT_URL=$base comes "s3://open/$one"
grep -q 'signed$' requests && tail -n 1 requests | grep -q 'plain$' || complain "a request without keys: $(tail -n 1 requests)"
keyed comes "s3://pets/$one" --s3-endpoint "$base"
AWS_ENDPOINT_URL_S3=$base AWS_ENDPOINT_URL=http://127.0.0.1:9 keyed comes "s3://pets/$one"
AWS_SESSION_TOKEN=$token at_store comes "s3://token/$one"
: >requests # buckets of two stores may have one name
keyed "$towers" data info "s3://pets/$one" --s3-endpoint "http://localhost:$port" --cache-dir "fresh/$calls" >/dev/null 2>err || complain "another store: $(cat err)"
keyed "$towers" data info "s3://pets/$one" --s3-endpoint "$base" --cache-dir "fresh/$calls" >/dev/null 2>err || complain "a second store: $(cat err)"
[[ $(grep -c '^GET .*val-000000' requests) == 2 ]] || complain "the objects of two stores are taken for one another: $(cat requests)"
mkdir home/.aws
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = none\n[ team ]\r\naws_access_key_id=%s\r\naws_secret_access_key=%s\r\naws_session_token=%s\r\n' \
    "$id" "$id" "$secret" "$token" >home/.aws/credentials
printf '[profile team]\nregion = us-east-1\nendpoint_url = %s\ns3 =\n    addressing_style = path\n[profile far]\nregion = eu-central-1\nsso_session = us\n' "$base" >home/.aws/config
AWS_PROFILE=team comes "s3://token/$one"
AWS_PROFILE=team AWS_CONFIG_FILE=/dev/null AWS_ENDPOINT_URL=$base comes "s3://token/$one"
cp home/.aws/credentials elsewhere
AWS_PROFILE=team AWS_SHARED_CREDENTIALS_FILE=elsewhere HOME=/none AWS_ENDPOINT_URL=$base comes "s3://token/$one"
AWS_SHARED_CREDENTIALS_FILE=home/.aws AWS_ENDPOINT_URL=$base refuses 2 "AWS_SHARED_CREDENTIALS_FILE: 'home/.aws' is expected to be a file" info "s3://pets/$one"
AWS_PROFILE=absent AWS_ENDPOINT_URL=$base refuses 2 "there is no profile 'absent'" info "s3://pets/$one"
AWS_PROFILE=far AWS_ENDPOINT_URL=$base refuses 2 "gets its keys by sso_session, which only AWS's tools do" info "s3://pets/$one"
AWS_ENDPOINT_URL=$base refuses 6 "answers 403: it is forbidden; the request was signed with the keys of the profile 'default'" info "s3://pets/$one"
at_store comes "s3://pets/$one" # the environment goes before the profile
# a bucket as a host below an endpoint, where a profile says so and the endpoint has a name
sed -i "s|127.0.0.1|localhost|; s|= path|= virtual|" home/.aws/config
: >requests
AWS_PROFILE=team comes "s3://pets/$one"
grep -q "^GET pets.localhost:$port /$one " requests || complain "a bucket is no host: $(cat requests)"
AWS_PROFILE=team comes "s3://pets/$one" --s3-endpoint "$base"
grep -q "^GET 127.0.0.1:$port /pets/$one " requests || complain "a bucket below a number is no path: $(tail -n 1 requests)"
rm -r home/.aws

# ---- keys of objects as they are
at_store comes "s3://pets/a%20b+c=%C3%A9(g)'h!%2541*~.tar"
[[ -n $(find fresh -name "$odd" -path '*/pets/data/*') ]] || complain "an object with an odd key: $(find fresh -name '*.tar')"

# ---- folders that are listed, page by page
AWS_SESSION_TOKEN=$token at_store train listed --data-path "s3://pets/tar/" || complain "a folder of tars: $(tail -n 3 said/listed.err)"
same listed
[[ $(grep -c 'GET .*/pets/?continuation-token=.*prefix=tar%2F' requests) -ge 2 ]] || complain "a list has one page: $(grep list-type requests)"
: >requests
AWS_ENDPOINT_URL=$base train again --data-path "s3://pets/tar/" || complain "a folder in a warm cache: $(tail -n 3 said/again.err)"
same again
[[ ! -s requests ]] || complain "a folder in a warm cache is asked for: $(cat requests)"
AWS_ENDPOINT_URL=$base "$towers" train fashion_cnn --data-path "s3://pets/tar/" --dry-run >out 2>err || complain "--dry-run of a folder in the cache: $(cat err)"
at_store refuses 2 "s3://pets/tar/ is not in '$work/never', and this call downloads nothing" "$towers" train fashion_cnn --data-path "s3://pets/tar/" --dry-run --cache-dir never
mkdir "sets/folder é+&" && cp sets/tar/* "sets/folder é+&" && touch "sets/folder é+&"/{notes.txt,a.tar.part}
cp sets/tar/set-train-000000.tar "sets/folder é+&/set-train-000009.tar" # it comes into the cache, and then leaves the bucket
at_store "$towers" data info "s3://pets/folder%20%C3%A9+&/set-train-000009.tar" --cache-dir listed >out 2>err || complain "a shard of a folder: $(cat err)"
rm "sets/folder é+&/set-train-000009.tar"
"$towers" data info "sets/folder é+&" >here 2>err || complain "a folder of this machine: $(cat err)"
mkdir "sets/folder é+&/below"
at_store "$towers" data info "s3://pets/folder%20%C3%A9+&/" --cache-dir listed >there 2>err || complain "a folder with an odd name: $(cat err)"
grep -q "; 2 other objects of the listed folders are no shards" err || complain "other objects are not counted: $(cat err)"
grep -qE '^[0-9]+ paths, from .*/folder é\+&/set-train-000000.tar to .*/folder é\+&/set-val-000000.tar: WebDataset tars$' there || complain "a listed folder has no short name: $(head -n 1 there)"
cmp -s <(grep -E '^(training|evaluation|classes):' here) <(grep -E '^(training|evaluation|classes):' there) || complain "a listed folder is another set: $(cat here there)"
mkdir -p sets/parts/{train,val} && cp sets/tar/set-train-*.tar sets/parts/train && cp sets/tar/set-val-*.tar sets/parts/val && cp sets/tar/classes.txt sets/parts
at_store train parts --data-path "s3://pets/parts/{train,val}/" || complain "two folders of tars: $(tail -n 3 said/parts.err)"
same parts
# a whole bucket, which has the set and other objects
mv "sets/$odd" .
cp sets/tar/* sets
at_store train bucket --data-path "s3://pets/" || complain "a whole bucket: $(tail -n 3 said/bucket.err)"
same bucket
rm sets/set-*.tar sets/classes.txt
mv "$odd" sets
at_store refuses 2 "expected a path behind the host" info "http://127.0.0.1:$port/"
# an object that has left the bucket since it was listed: the list comes anew
at_store "$towers" data info "s3://pets/parts/train/" --cache-dir stale >out 2>err || complain "a folder of a part: $(cat err)"
find stale -name 'set-train-000005.tar*' -delete
rm sets/parts/train/set-train-000005.tar
at_store refuses 6 "set-train-000005.tar: the server answers 404" "$towers" data info "s3://pets/parts/train/" --cache-dir stale --net-timeout 2
at_store "$towers" data info "s3://pets/parts/train/" --cache-dir stale >out 2>err || complain "a folder that has changed: $(cat err)"
# what was denied, or not there yet, is asked for again
in_one_cache() { "$towers" data info "$1" --cache-dir one --net-timeout 3; }
AWS_ENDPOINT_URL=$base refuses 6 "answers 403" in_one_cache "s3://pets/mds/{train,val}/"
at_store in_one_cache "s3://pets/mds/{train,val}/" >out 2>err || complain "keys come later: $(tail -n 2 err)"
at_store refuses 3 "s3://pets/later/ has neither index.json nor shards" in_one_cache "s3://pets/later/"
cp -r sets/mds/train sets/later
at_store in_one_cache "s3://pets/later/" >out 2>err || complain "a set comes later: $(tail -n 2 err)"
mkdir sets/hidden && cp sets/tar/set-train-000000.tar sets/hidden && touch sets/hidden/._set-train-000000.tar
at_store in_one_cache "s3://pets/hidden/" >out 2>err || complain "a hidden object: $(tail -n 2 err)"
printf '{"address": "x", "shards": [], "others": 0}\n' >"$(find one -name index.json.list -path '*hidden*')"
at_store refuses 3 "is damaged; the same command brings it anew" in_one_cache "s3://pets/hidden/"
at_store in_one_cache "s3://pets/hidden/" >out 2>err || complain "a list that was damaged: $(tail -n 2 err)"
mkdir sets/endless sets/emptier
at_store refuses 3 "the list of its objects never ends" in_one_cache "s3://pets/endless/"
at_store refuses 3 "the list of its objects never ends" in_one_cache "s3://pets/emptier/"
AWS_ENDPOINT_URL=$base refuses 6 "answers 403: it is forbidden; the request was not signed, because no keys were found. Whoever may read objects may not always list them" info "s3://open/tar/"
at_store refuses 3 "s3://pets/mds/ has neither index.json nor shards, but folders: name those of the set, as 's3://pets/mds/{train,val}/'" info "s3://pets/mds/"
at_store refuses 3 "has neither index.json nor shards; it has 0 other objects" info "s3://pets/none/"
mkdir sets/packed && touch sets/packed/{a.tar.gz,b.tar} && at_store refuses 3 "s3://pets/packed/a.tar.gz is compressed" info "s3://pets/packed/"
mkdir sets/gap && for number in 0 2; do cp sets/tar/set-train-000000.tar "sets/gap/train-0000$number-of-00003.tar"; done
at_store refuses 3 "train-00001-of-00003.tar is not there, but the names of the other shards speak of it (1 of them is not there)" info "s3://pets/gap/"

# ---- refusals
AWS_ENDPOINT_URL=$base refuses 6 "answers 403: it is forbidden; the request was not signed, because no keys were found" info "s3://pets/$one"
AWS_SECRET_ACCESS_KEY=$token AWS_ACCESS_KEY_ID=$id AWS_ENDPOINT_URL=$base refuses 6 "answers 403: it is forbidden; the request was signed with the keys of AWS_ACCESS_KEY_ID" info "s3://pets/$one"
at_store refuses 6 "answers 403" info "s3://token/$one"
at_store refuses 6 "answers 404: it is not there" info "s3://pets/none.tar"
at_store refuses 6 "answers 404: it is not there" info "s3://none/$one"
at_store refuses 6 "the bucket is in the region eu-central-1, not in us-east-1: set AWS_REGION" info "s3://far/$one"
at_store refuses 6 "the bucket is in the region eu-central-1, not in us-east-1: set AWS_REGION" info "s3://farther/$one"
at_store refuses 6 "the clock of this machine is 60 minutes behind that of the server: set it" info "s3://late/$one"
AWS_REGION=eu-central-1 at_store refuses 6 "answers 403" info "s3://pets/$one"
AWS_DEFAULT_REGION=eu-central-1 AWS_REGION=us-east-1 at_store comes "s3://pets/$one"
AWS_REGION='us east' at_store refuses 2 "'us east' (AWS_REGION, or region of the profile of AWS) is no region of S3" info "s3://pets/$one"
AWS_ACCESS_KEY_ID=$id AWS_ENDPOINT_URL=$base refuses 2 "or neither; found one of them" info "s3://pets/$one"
AWS_SECRET_ACCESS_KEY="$secret"$'\r' AWS_ACCESS_KEY_ID=$id AWS_ENDPOINT_URL=$base refuses 2 "the secret key of AWS (AWS_SECRET_ACCESS_KEY) has a blank, a line break" info "s3://pets/$one"
for endpoint in "http://me:$secret@127.0.0.1:$port" "ftp://$secret" "$base/a/$secret" "http://" "127.0.0.1:$port"; do
    keyed refuses 2 "is expected as http://HOST:PORT or https://HOST" info "s3://pets/$one" --s3-endpoint "$endpoint"
    keyed refuses 2 "is expected as http://HOST:PORT or https://HOST" "$towers" train fashion_cnn --dry-run --data-path sets/tar --s3-endpoint "$endpoint"
    AWS_ENDPOINT_URL=$endpoint keyed refuses 2 "is expected as http://HOST:PORT or https://HOST" info "s3://pets/$one"
done
at_store refuses 2 "expected s3://BUCKET/KEY, without a port" info "s3://pets:80/$one"
at_store refuses 2 "S3:// is expected in small letters" info "S3://pets/$one"
at_store refuses 2 "expected a path behind the host" info "s3://pets"
kill -0 "$server" || complain "the store has ended"

# ---- the commands of the page
cp -r sets/tar sets/set
sed -n '/^```sh$/,/^```$/p' "$source_dir/docs/remote.md" | grep 's3://' | sed "s|^towers|\"\$towers\"|; s|http://127.0.0.1:9000|$base|" >page
[[ $(wc -l <page) -ge 2 ]] || complain "docs/remote.md has only $(wc -l <page) commands"
while read -r line; do (at_store eval "$line") >said/page.out 2>said/page.err </dev/null || complain "docs/remote.md: $line: exit $?: $(tail -n 3 said/page.err)"; done <page

# ---- no secret anywhere: not while a run goes on, not in what it leaves
AWS_SESSION_TOKEN=$token at_store train running --data-path "s3://token/$tars" --max-steps 2000 &
if wait_until test -s runs/running/metrics.jsonl; then
    running=$(cat runs/running/.lock)
    tr '\0' '\n' <"/proc/$running/cmdline" >said/cmdline
    grep -q s3://token said/cmdline || complain "the command line of a run: $(cat said/cmdline)"
    kill -TERM "$running"
else
    complain "a run does not begin: $(tail -n 3 said/running.err)"
fi
wait $!
found=$(grep -rlF -e "$secret" -e "$token" -e "${secret:0:12}" -e "${token:0:12}" said runs cache fresh listed out err)
[[ -z $found ]] || complain "a secret is in $found"
[[ $(find said runs cache fresh -type f | wc -l) -gt 200 ]] || complain "only $(find said runs cache fresh -type f | wc -l) files were searched"

# ---- a store of others
if moto_begin "$work/sets" "data from"; then
    base=http://127.0.0.1:$port
    at_store train moto --data-path "s3://pets/$tars" || complain "tars of moto: $(tail -n 3 said/moto.err)"
    same moto
    at_store comes "s3://pets/mds/{train,val}/"
    at_store train of_moto --data-path "s3://pets/set/" || complain "a folder of moto: $(tail -n 3 said/of_moto.err)"
    same of_moto
    at_store comes "s3://pets/a%20b+c=%C3%A9(g)'h!%2541*~.tar"
    secret=${secret:1}X at_store refuses 6 "answers 403: it is forbidden; the request was signed" info "s3://pets/$one"
    AWS_ENDPOINT_URL=$base refuses 6 "answers 403: it is forbidden; the request was not signed" info "s3://pets/$one"
    grep -rlF "$secret" said runs cache fresh && complain "a secret of moto is left"
fi
check_end "data in a store with the interface of S3 train as local ones do, and no secret is left anywhere"
