#!/usr/bin/env bash
# Install what building, testing and the default job need, from the system's package registry. What is there is left alone.
# usage: scripts/setup.sh [build|test|bench]...   (default: build)
set -euo pipefail

build=(gcc cmake ninja-build pkg-config libdnnl-dev libjansson-dev libyaml-dev libxxhash-dev libprotobuf-c-dev protobuf-c-compiler
       zlib1g-dev libjpeg-dev libspng-dev libwebp-dev dataset-fashion-mnist)
check=(libcmocka-dev clang clang-format libclang-rt-14-dev strace python3 python3-pil python3-venv codespell)
bench=(python3-torch python3-torchvision python3-numpy)

wanted=()
for group in "${@:-build}"; do
    case $group in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${build[@]}" "${check[@]}") ;;
    bench) wanted+=("${build[@]}" "${bench[@]}") ;;
    *) echo "setup: no group '$group' (build, test, bench)" >&2; exit 2 ;;
    esac
done

missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: this script knows Debian's and Ubuntu's packages; please install what stands for: ${missing[*]}" >&2
    exit 5
fi
run=()
[ "$(id -u)" = 0 ] || run=(sudo)
echo "installing (a few minutes): ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { "${run[@]}" apt-get update -qq && "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: the packages could not be installed; the last lines of apt-get stand above" >&2
    exit 5
fi
