#!/usr/bin/env bash
# Build the Python wheel that contains the trainer: installed by pip it gives `towers` in PATH and `import towers`. Program and library
# are built for CPUs, without CUDA, MPI, libtiff and libheif, which a wheel cannot carry; libcurl and libarchive are built from Debian's
# sources with the parts that towers uses, because Debian's bring GnuTLS, Kerberos, LDAP and others. auditwheel then copies the libraries
# into the wheel and names it by the oldest glibc that can run it. scripts/wheel/carried.txt lists the libraries that may be carried, with
# their licenses; any other one ends the script. Needs Debian and a network; 5 minutes on two cores.
# usage: scripts/wheel.sh [FOLDER]     (default: build-wheel; the wheel is made in FOLDER/dist)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-build-wheel}")
root=$folder/root # what is built from sources

scripts/setup.sh wheel
python=$(scripts/venv.sh wheel)
export PATH=$(dirname "$python"):$PATH
mkdir -p "$root" "$folder/dist"
log=$folder/log
trap 'status=$?; [ $status = 0 ] || { tail -n 30 "$log" >&4; echo "scripts/wheel.sh: $doing failed; $log has all of it" >&4; }' EXIT
exec 3>&1 4>&2 >"$log" 2>&1
doing=setup
say() { doing=$1; echo "== $1" >&3; }

# ---- libraries from Debian's sources: a list of its own for apt, with the mirrors, and the signatures, of this machine
apt=$folder/apt
own=(-o "Dir::State=$apt/state" -o Dir::State::status=/var/lib/dpkg/status -o "Dir::Cache=$apt/cache" -o "Dir::Etc::sourcelist=$apt/list"
     -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=)
sources_fetch() {
    rm -rf "$folder/sources" && mkdir -p "$folder/sources"
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' | sort -u |
        awk '{ print "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $1, $2, "main" }' >"$apt/list"
    apt-get "${own[@]}" update
    (cd "$folder/sources" && apt-get "${own[@]}" source "$@")
}
# library NAME OPTION...: configure, build and install a source by CMake
library() {
    local name=$1 source
    shift
    source=$(find "$folder/sources" -maxdepth 1 -type d -name "$name-*")
    cmake -G Ninja -S "$source" -B "$folder/$name" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$root" -DCMAKE_INSTALL_LIBDIR=lib "$@"
    cmake --build "$folder/$name"
    cmake --install "$folder/$name"
    mkdir -p "$folder/licenses"
    cp "$source/COPYING" "$folder/licenses/$name"
}
if ! cmp -s scripts/wheel.sh "$root/done"; then # or with the options of another version of this script
    say "libcurl and libarchive from Debian's sources"
    sources_fetch curl libarchive
    library curl -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_USE_LIBSSH2=OFF -DCURL_USE_GSSAPI=OFF -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF -DCURL_BROTLI=OFF \
        -DCURL_ZSTD=OFF -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
    library libarchive -DENABLE_TEST=OFF -DENABLE_TAR=OFF -DENABLE_CPIO=OFF -DENABLE_CAT=OFF -DENABLE_OPENSSL=OFF -DENABLE_NETTLE=OFF -DENABLE_ACL=OFF \
        -DENABLE_XATTR=OFF -DENABLE_LIBXML2=OFF -DENABLE_EXPAT=OFF -DENABLE_LZMA=OFF -DENABLE_ZSTD=OFF -DENABLE_LZ4=OFF -DENABLE_LZO=OFF -DENABLE_LIBB2=OFF \
        -DENABLE_BZip2=OFF -DENABLE_ICONV=OFF
    cp scripts/wheel.sh "$root/done"
fi

# ---- program and library
say "towers, for CPUs on one host"
PKG_CONFIG_PATH=$root/lib/pkgconfig cmake -G Ninja -S . -B "$folder/towers" -DTOWERS_CUDA=OFF -DTOWERS_MPI=OFF -DTOWERS_DNNL=ON -DTOWERS_GIF=ON -DTOWERS_TIFF=OFF -DTOWERS_HEIF=OFF -DTOWERS_TESTS=OFF \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O3 -DCMAKE_BUILD_RPATH="$root/lib"
cmake --build "$folder/towers" --target towers towers_shared

# ---- the wheel
say "the wheel"
stage=$folder/stage
rm -rf "$stage" "$folder/plain" "$folder/packed"
mkdir -p "$stage" "$folder/plain" "$folder/packed"
cp -r examples/python "$stage/source"
rm -rf "$stage/source/build" "$stage"/source/*.egg-info
cat >>"$stage/source/pyproject.toml" <<'TOML'

[project.scripts]
towers = "towers.program:main"
TOML
"$python" -m pip wheel -q --no-deps --no-build-isolation --no-index -w "$folder/plain" "$stage/source"
(cd "$stage" && "$python" -m wheel unpack "$folder"/plain/towers-*.whl)
unpacked=$(echo "$stage"/towers-*)
info=$(echo "$unpacked"/towers-*.dist-info)
mkdir -p "$unpacked/towers/bin" "$info/licenses"
for file in towers libtowers.so.0; do
    cp "$(readlink -f "$folder/towers/$file")" "$unpacked/towers/bin/$file"
    strip "$unpacked/towers/bin/$file"
done
sed -i 's/^Root-Is-Purelib: true/Root-Is-Purelib: false/; s/^Tag: .*/Tag: py3-none-linux_'"$(uname -m)"'/' "$info/WHEEL"
cp LICENSE "$info/licenses/"
"$python" scripts/wheel/carried.py "$unpacked/towers/bin" "$folder/licenses" "$info/licenses"
"$python" -m wheel pack -d "$folder/packed" "$unpacked"

say "its libraries"
rm -f "$folder"/dist/*.whl
LD_LIBRARY_PATH=$root/lib auditwheel repair -w "$folder/dist" "$folder"/packed/towers-*.whl
auditwheel show "$folder"/dist/towers-*.whl
echo "$(ls "$folder"/dist/towers-*.whl), $(du -h --apparent-size "$folder"/dist/towers-*.whl | cut -f 1)" >&3
