#!/usr/bin/env bash
# Data at https addresses of nginx (tests/support/nginx.py), with certificates of an authority made here: the same bits as from local shards by
# HTTP/2 and by HTTP/1.1; a download that was killed goes on by range, if the object is still the same; the environment names who is trusted, as for
# curl; other certificates, versions of TLS before 1.2 and ways back to http are refused by name, at once. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
# Its package would start a server on this machine, so it is unpacked here alone.
PATH=$PATH:/usr/sbin:$work/nginx/usr/sbin
if ! command -v nginx >/dev/null && ! (apt-get download -q nginx && dpkg-deb -x nginx_*.deb nginx) >apt 2>&1; then
    echo "SKIPPED: nginx is not installed, and apt does not bring it: $(tail -n 1 apt)" >&2
    exit 77
fi
unset CURL_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR OPENSSL_CONF "${!AWS_@}"
export XDG_CACHE_HOME=$work/cache HOME=$work no_proxy=127.0.0.1,localhost
IMAGES=300 python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar tfrecord mds || exit 1
mkdir sets/paced temp

# ---- certificates: of an authority for localhost, the same of the year 2020, and those of another authority
authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem" 2>"$err" || complain "openssl req: $(cat "$err")"
}
certificate() { # NAME BEGIN END
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>"$err" &&
        openssl ca -batch -notext -config ca.conf -name ca -in "$1.csr" -out "$1.pem" -startdate "$2" -enddate "$3" 2>"$err" || complain "openssl ca: $(cat "$err")"
}
authority house
authority foreign
cat >ca.conf <<TEXT
[ca]
database = $work/ca.index
serial = $work/ca.serial
new_certs_dir = $work
certificate = $work/house.pem
private_key = $work/house.key
default_md = sha256
policy = names
x509_extensions = host
[names]
commonName = supplied
[host]
subjectAltName = DNS:localhost
TEXT
touch ca.index
echo 01 >ca.serial
certificate valid "$(date -u -d '2 days ago' +%Y%m%d%H%M%SZ)" "$(date -u -d '20 days' +%Y%m%d%H%M%SZ)"
certificate old 20200101000000Z 20200201000000Z
mkdir trusted && cp house.pem "trusted/$(openssl x509 -in house.pem -noout -hash).0"

# ---- the server. A paced object comes slowly behind its first 100 KB, unless a range is asked for
user=
[[ $(id -u) != 0 ]] || user="user root;"
cat >template <<TEXT
$user
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log;
events { }
http {
    log_format asked escape=none '\$server_protocol \$ssl_protocol \$request_method \$uri \$status range:\$http_range if:\$http_if_range';
    log_format met '\$connection \$request_method \$uri';
    access_log requests asked;
    access_log connections met;
    client_body_temp_path temp/body; proxy_temp_path temp/proxy; fastcgi_temp_path temp/fastcgi; uwsgi_temp_path temp/uwsgi; scgi_temp_path temp/scgi;
    map \$http_range \$pace { default 0; "" 2k; }
    root $work/sets;
    ssl_certificate $work/valid.pem;
    ssl_certificate_key $work/valid.key;
    server {
        listen 127.0.0.1:@0@ ssl http2;
        location /paced/ { limit_rate_after 100k; limit_rate \$pace; }
        location /down/ { rewrite ^/down/(.*) http://localhost:@4@/\$1 redirect; }
        location /over/ { rewrite ^/over/(.*) https://localhost:@1@/\$1 redirect; }
    }
    server { listen 127.0.0.1:@1@ ssl; }
    server { listen 127.0.0.1:@2@ ssl; ssl_protocols TLSv1.1; ssl_ciphers ALL:@SECLEVEL=0; }
    server { listen 127.0.0.1:@3@ ssl; ssl_certificate $work/old.pem; ssl_certificate_key $work/old.key; }
    server { listen 127.0.0.1:@4@; }
}
TEXT
coproc NGINX { exec python3 "$source_dir/tests/support/nginx.py" "$work" template 5 2>"$work/nginx.err"; }
server=$NGINX_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r second first early expired plain <&"${NGINX[0]}" || complain "nginx does not start: $(cat nginx.err)"
base=https://localhost:$second
tars='tar/set-{train-{000000..000005},val-000000}.tar'
records='tfrecord/{train-{00000..00005}-of-00006,validation-00000-of-00001}'
one=tar/set-val-000000.tar

house() { SSL_CERT_FILE=$work/house.pem "$@"; }
train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 --net-timeout 60 \
        --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null
}
same() { cmp -s <(tensors runs/local/last.safetensors) <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than from local shards"; }
calls=0
info() { # ADDRESS: into a cache of its own
    calls=$((calls + 1))
    "$towers" data info "$1" --net-timeout 60 --cache-dir "fresh/$calls"
}
comes() { info "$1" >"$out" 2>"$err" </dev/null || complain "$1: $(tail -n 2 "$err")"; }
at_once() { # TEXT ADDRESS: refused by the first answer, without a byte
    refuses 6 "$1" info "$2"
    ! grep -q "trying again" "$err" || complain "$2: tried again: $(cat "$err")"
    [[ ! -e fresh/$calls || -z $(find "fresh/$calls" -path '*/data/*' -type f) ]] || complain "$2: something has come: $(find "fresh/$calls" -type f)"
}

# ---- the same bits, by HTTP/2 and by HTTP/1.1
train local --data-path sets/tar || complain "local shards: $(cat local.err)"
for set in "tar|$tars" "tfrecord|$records" "mds|mds/{train,val}/"; do
    house train "${set%%|*}" --data-path "$base/${set#*|}" || complain "${set%%|*}: $(tail -n 3 "${set%%|*}.err")"
    same "${set%%|*}"
done
[[ $(grep -c '^HTTP/2.0 TLSv1\.[23] GET ' requests) -ge 21 ]] && ! grep -v '^HTTP/2.0 TLSv1\.[23] ' requests || complain "not all by HTTP/2: $(cat requests)"
: >requests
house train one_at_a_time --data-path "https://localhost:$first/$tars" || complain "HTTP/1.1: $(tail -n 3 one_at_a_time.err)"
same one_at_a_time
[[ $(grep -c '^HTTP/1.1 TLSv1\.[23] GET ' requests) -ge 7 ]] || complain "not by HTTP/1.1: $(cat requests)"
"$towers" data index sets/tar >"$out" 2>"$err" || complain "data index: $(cat "$err")"
house train while_it_comes --data-path "$base/$tars" --cache-dir streamed || complain "with an index: $(tail -n 3 while_it_comes.err)"
same while_it_comes
# shards that come while they are read use connections again: no more of them than threads
mkdir sets/many
for ((shard = 0; shard < 24; shard++)); do cp "sets/tar/set-train-00000$((shard % 6)).tar" "sets/many/$(printf 'train-%06d.tar' $shard)"; done
cp "sets/$one" sets/many/val-000000.tar && cp sets/tar/classes.txt sets/many
"$towers" data index sets/many >"$out" 2>"$err" || complain "data index: $(cat "$err")"
: >connections
house train many --processes 1 --shuffle-window 0 --data-path "$base/many/{train-{000000..000023},val-000000}.tar" --cache-dir many || complain "many shards: $(tail -n 3 many.err)"
gets=$(grep -c ' GET .*\.tar$' connections) by=$(grep ' GET .*\.tar$' connections | cut -d ' ' -f 1 | sort -u | wc -l)
((gets > 16 && by <= 8)) || complain "$gets shards come by $by connections; expected at most 8"
: >requests
train warm --data-path "$base/$tars" || complain "a warm cache: $(tail -n 3 warm.err)"
same warm
[[ ! -s requests ]] || complain "a warm cache asks: $(cat requests)"

# ---- a download that was killed goes on by range, or begins anew if the object is another one
half() { # NAME: its download begins, and is killed
    cp sets/tar/set-train-000002.tar "sets/paced/$1"
    SSL_CERT_FILE=$work/house.pem "$towers" data info "$base/paced/$1" --cache-dir "$1" >"$out" 2>"$err" </dev/null &
    wait_until eval "! kill -0 $! || [[ \$(find '$1' -path '*/partial/*' -size +80k) ]]"
    kill -KILL $! || complain "$1 has not come slowly: $(tail -n 2 "$err")"
    wait $! 2>/dev/null
    : >requests
}
half same.tar
house "$towers" data info "$base/paced/same.tar" --cache-dir same.tar >"$out" 2>"$err" || complain "a download that goes on: $(tail -n 2 "$err")"
grep -qE '^HTTP/2.0 [^ ]* GET /paced/same.tar 206 range:bytes=[0-9]{5,}- if:"[0-9a-f-]+"$' requests || complain "it does not go on by range: $(cat requests)"
cmp -s sets/paced/same.tar "$(find same.tar -path '*/data/*/same.tar')" || complain "what went on has other bytes"
half other.tar
cp "sets/$one" sets/paced/other.tar
house "$towers" data info "$base/paced/other.tar" --cache-dir other.tar >"$out" 2>"$err" || complain "an object that has changed meanwhile: $(tail -n 2 "$err")"
grep -q ' GET /paced/other.tar 200 ' requests || complain "another object does not come whole: $(cat requests)"
cmp -s sets/paced/other.tar "$(find other.tar -path '*/data/*/other.tar')" || complain "an object that has changed has other bytes"

# ---- who is trusted: what the environment names, as for curl
house comes "$base/$one"
CURL_CA_BUNDLE=house.pem SSL_CERT_FILE=foreign.pem comes "$base/$one"
SSL_CERT_DIR=trusted comes "$base/$one"
CURL_CA_BUNDLE='' SSL_CERT_DIR='' house comes "$base/over/$one" # by a redirect to another port
for names in CURL_CA_BUNDLE SSL_CERT_FILE; do
    (export "$names=foreign.pem"; at_once ": TLS: the certificate of the host is not trusted (" "$base/$one"; exit $failures) || failures=$((failures + 1))
    (export "$names=none.pem"; at_once ": TLS: the file of trusted certificates cannot be read" "$base/$one"; exit $failures) || failures=$((failures + 1))
done
CURL_CA_BUNDLE=foreign.pem SSL_CERT_DIR=trusted at_once "not trusted" "$base/$one"
at_once "if you trust who signed it, name a file with that certificate in CURL_CA_BUNDLE" "$base/$one"
export SSL_CERT_FILE=$work/house.pem
at_once "certificate has expired); whoever keeps the server must renew it, unless the clock of this machine is wrong" "https://localhost:$expired/$one"
at_once "; give the address with a name that the certificate has" "https://127.0.0.1:$second/$one"
at_once "it is redirected from https to http" "$base/down/$one"
: >requests
comes "http://localhost:$plain/$one"
! grep -v '^HTTP/1.1  [HG]' requests || complain "http by TLS: $(cat requests)"

# ---- no TLS before 1.2, even where the system allows it
printf 'openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = any\n[any]\nMinProtocol = TLSv1\nCipherString = DEFAULT:@SECLEVEL=0\n' >any.conf
: >requests
if OPENSSL_CONF=$work/any.conf curl -sS --cacert house.pem -o early.tar "https://localhost:$early/$one" 2>"$err" && cmp -s early.tar "sets/$one"; then
    grep -q '^HTTP/1.1 TLSv1.1 GET ' requests || complain "the server for TLS 1.1: $(cat requests)"
    : >requests
    OPENSSL_CONF=$work/any.conf refuses 6 "TLS: the handshake failed" info "https://localhost:$early/$one"
    [[ ! -s requests ]] || complain "TLS 1.1 is taken: $(cat requests)"
else
    left_out "TLS 1.1: the libraries of this machine do not know it: $(tail -n 1 "$err")"
fi
kill -0 "$server" || complain "nginx has ended: $(tail -n 3 error.log)"
check_end "nginx gives the same bits by TLS, HTTP/2 and ranges, and what is not to be trusted is refused"
