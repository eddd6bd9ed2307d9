#!/usr/bin/env bash
# Collect what a bare GPU machine needs to build and check Towers offline: headers and static libraries of the small C libraries,
# cmocka, the generated protocol code, and Fashion-MNIST, into third_party/bundle (about 45 MB, not in git).
# usage: scripts/gpu_bundle.sh [--few] [--nccl LIBRARY [--gpu N]] [FOLDER]   (on a Debian or Ubuntu machine where scripts/setup.sh test has run)
#   --few           2,048 images to train on instead of all, 27 MB less: enough for part nccl, too few for parts model, resume and scale
#   --nccl LIBRARY  a libnccl.so.2 of NCCL 2.30 or newer, with which part nccl tries ranks of one host, too; in it the code of other GPUs
#                   than --gpu (default 90, of an H200) is emptied: 30 MB instead of 250
# Then copy the working tree with that folder to the machine and run scripts/gpu_check.sh there.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh python
few=no nccl='' gpu=90 folder=third_party/bundle
while [ $# -gt 0 ]; do
    case $1 in
    --few) few=yes ;;
    --nccl) nccl=$(realpath -e "${2:?--nccl needs a library}") && shift ;;
    --gpu) gpu=${2:?--gpu needs a number} && shift ;;
    -*) echo "gpu_bundle: unknown option '$1'" >&2; exit 2 ;;
    *) folder=$1 ;;
    esac
    shift
done
bundle=$(realpath -m "$folder")
rm -rf "$bundle"
mkdir -p "$bundle"/{include,lib/pkgconfig,bin,proto,data}

multi=$(gcc -print-multiarch 2>/dev/null || true)

# With what a static library was built, but for the system's; stubs replace two of them below, which were built with dozens.
libraries_of() { # PKG_CONFIG_NAME
    case $1 in
    libcurl | libarchive) pkg-config --libs-only-l "$1" ;;
    *) pkg-config --static --libs-only-l "$1" | tr ' ' '\n' | grep -vxE -- '|-l(m|c|dl|rt|pthread)' | paste -sd ' ' ;;
    esac
}

# take PKG_CONFIG_NAME HEADER... : copy the headers and the library (static if available), and write a .pc file for the copy
take() {
    local name=$1 libdir includedir flag library libraries
    libraries=$(libraries_of "$name")
    shift
    libdir=$(pkg-config --variable=libdir "$name")
    includedir=$(pkg-config --variable=includedir "$name")
    libdir=${libdir:-/usr/lib/$multi}
    includedir=${includedir:-/usr/include}
    for header in "$@"; do
        mkdir -p "$bundle/include/$(dirname "$header")"
        cp "$includedir/$header" "$bundle/include/$header"
    done
    for flag in $libraries; do
        library=lib${flag#-l}
        if [ -f "$libdir/$library.a" ]; then
            cp "$libdir/$library.a" "$bundle/lib/"
        else # fails if the library is not installed
            cp -L "$libdir/$library.so" "$bundle/lib/$library.so"
            soname=$(objdump -p "$libdir/$library.so" | sed -n 's/^ *SONAME *//p')
            ln -sf "$library.so" "$bundle/lib/$soname"
        fi
    done
    # shellcheck disable=SC2016 # pcfiledir is pkg-config's variable
    printf 'prefix=${pcfiledir}/../..\nName: %s\nDescription: %s\nVersion: %s\nLibs: -L${prefix}/lib %s\nCflags: -I${prefix}/include\n' \
        "$name" "$name" "$(pkg-config --modversion "$name")" "$libraries" >"$bundle/lib/pkgconfig/$name.pc"
}
take jansson jansson.h jansson_config.h
take yaml-0.1 yaml.h
take libxxhash xxhash.h
mapfile -t openssl < <(cd "$(pkg-config --variable=includedir libcrypto)" && ls openssl/*.h)
take libcrypto "${openssl[@]}"
take libprotobuf-c protobuf-c/protobuf-c.h
take zlib zlib.h zconf.h
take libjpeg jpeglib.h jmorecfg.h jerror.h
take spng spng.h
take libwebp webp/decode.h webp/types.h
take libarchive archive.h archive_entry.h
take cmocka cmocka.h
for header in zconf.h jconfig.h; do
    [ ! -f "/usr/include/$multi/$header" ] || cp "/usr/include/$multi/$header" "$bundle/include/"
done
[ ! -d "/usr/include/$multi/openssl" ] || cp "/usr/include/$multi/openssl/"*.h "$bundle/include/openssl/"

# What is linked, but never called there, would bring a dozen libraries more: FID's matrices, downloads, tars. They end the program.
stub() { # LIBRARY FUNCTION...
    local library=$1 name
    shift
    {
        echo '#include <stdio.h>'
        echo '#include <stdlib.h>'
        for name in "$@"; do echo "void $name(void) { fputs(\"$name: third_party/bundle has none\\n\", stderr); abort(); }"; done
    } | gcc -c -fPIC -x c -o "$bundle/lib/stub.o" -
    rm -f "$bundle/lib/$library.a"
    ar rcs "$bundle/lib/$library.a" "$bundle/lib/stub.o"
    rm "$bundle/lib/stub.o"
}
mapfile -t fortran < <(grep -oh '\<[a-z]*_(' inception/quality/frechet.c | tr -d '(' | sort -u)
stub libblas sgemm_ "${fortran[@]}" # CMake asks for sgemm_ and cheev_
stub liblapack cheev_
mapfile -t curl < <(cd "$(pkg-config --variable=includedir libcurl)" && ls curl/*.h)
take libcurl "${curl[@]}"
for library in curl archive; do
    mapfile -t names < <(grep -rohE "\\<${library}_[a-z0-9_]+ ?\(" "$bundle/include/$library"* | tr -d ' (' | sort -u)
    stub "lib$library" "${names[@]}"
done

# The generated protocol code, and a replacement for protoc-c that copies it.
for proto in towers/*/*.proto; do protoc-c --proto_path="$(dirname "$proto")" --c_out="$bundle/proto" "$proto"; done
cat >"$bundle/bin/protoc-c" <<'STUB'
#!/usr/bin/env bash
# Replaces protoc-c: copies code that was generated when the bundle was made.
for word in "$@"; do
    case $word in
    --c_out=*) out=${word#--c_out=} ;;
    *.proto) stem=$(basename "$word" .proto) ;;
    esac
done
cp "$(dirname "$0")/../proto/$stem.pb-c.c" "$(dirname "$0")/../proto/$stem.pb-c.h" "$out"
STUB
chmod +x "$bundle/bin/protoc-c"

# A pkg-config for machines without one; knows only the libraries of this bundle.
cat >"$bundle/bin/bundle-pkg-config" <<'STUB'
#!/usr/bin/env bash
root=$(cd "$(dirname "$0")/.." && pwd)
name=${*: -1}
file=$root/lib/pkgconfig/$name.pc
case " $* " in *" --version "*) echo 0.29.2; exit 0 ;; esac
[ -f "$file" ] || { echo "Package '$name' is not in $root" >&2; exit 1; }
for word in "$@"; do
    case $word in
    --modversion) sed -n 's/^Version: //p' "$file" ;;
    --variable=prefix) echo "$root" ;;
    --variable=libdir) echo "$root/lib" ;;
    --variable=includedir) echo "$root/include" ;;
    --cflags | --cflags-only-I) echo "-I$root/include" ;;
    --libs-only-L) echo "-L$root/lib" ;;
    --libs-only-l) sed -n 's/^Libs: [^ ]* //p' "$file" ;;
    --libs) echo "-L$root/lib $(sed -n 's/^Libs: [^ ]* //p' "$file")" ;;
    esac
done
exit 0
STUB
chmod +x "$bundle/bin/bundle-pkg-config"

for place in /usr/share/datasets/fashion-mnist /usr/local/share/datasets/fashion-mnist data; do
    if [ -f "$place/train-images-idx3-ubyte.gz" ]; then
        cp "$place"/*-ubyte.gz "$bundle/data/"
        break
    fi
done
[ -f "$bundle/data/train-images-idx3-ubyte.gz" ] || echo "gpu_bundle: Fashion-MNIST was not found; gpu_check.sh will not train on it" >&2
if [ $few = yes ] && [ -f "$bundle/data/train-images-idx3-ubyte.gz" ]; then
    python3 - "$bundle/data" <<'PY'
import gzip, sys
for split, most in (("train", 2048), ("t10k", 256)):
    for name, head, each in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        path = f"{sys.argv[1]}/{split}-{name}-ubyte.gz"
        with gzip.open(path) as file:
            data = file.read()
        count = min(most, int.from_bytes(data[4:8], "big"))
        with gzip.open(path, "wb") as file:
            file.write(data[:4] + count.to_bytes(4, "big") + data[8 : head + count * each])
PY
fi
if [ -n "$nccl" ]; then
    mkdir "$bundle/nccl"
    scripts/blank_fatbin.py "$nccl" "$bundle/nccl/libnccl.so.2" "$gpu" >/dev/null
    strip "$bundle/nccl/libnccl.so.2" 2>/dev/null || true # its names are 50 MB, which no program needs
    xz -T0 "$bundle/nccl/libnccl.so.2"
fi
git describe --always --dirty=+ --exclude='*' >"$bundle/commit" 2>/dev/null || rm "$bundle/commit" # what is measured there, where there may be no git
du -sh "$bundle"
