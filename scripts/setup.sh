#!/usr/bin/env bash
# Install the packages needed for building, testing and the default job from the system's package registry; installed ones are kept.
# The group `test` also installs clang-format 14 from PyPI into the user's cache, on systems without a package of it.
# usage: scripts/setup.sh [build|mpi|cuda|python|venv|wheel|test|bench|peers|cross]...   (default: build)
#   wheel    what scripts/wheel.sh needs beside `build`
#   cuda     what scripts/cuda_from_pip.sh and a build with its toolkit need, beside `build`
#   python   Python 3, from wherever it is; venv: with virtual environments
set -euo pipefail

build=(gcc cmake ninja-build pkg-config libdnnl-dev libjansson-dev libyaml-dev libxxhash-dev libssl-dev libcurl4-openssl-dev libprotobuf-c-dev protobuf-c-compiler
       zlib1g-dev libjpeg-dev libspng-dev libwebp-dev libarchive-dev liblapack-dev libgif-dev dataset-fashion-mnist)
mpi=(openmpi-bin libopenmpi-dev) # for CPU towers on several hosts
check=("${mpi[@]}" libtiff-dev mpich libmpich-dev slurm-wlm libcmocka-dev iproute2 procps clang libclang-rt-dev libomp-dev strace patch curl openssl python3 python3-pil python3-yaml python3-venv codespell locales dpkg-dev file)
cuda=(g++ python3 python3-venv) # nvcc compiles with g++
wheel=(dpkg-dev python3 python3-venv)
bench=(python3-torch python3-torchvision python3-numpy)
peers=(python3 python3-venv python3-dev g++ libjemalloc2) # for PyTorch from PyPI, which compiles with g++

cross=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) # what scripts/check/portable.sh needs
system=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_CODENAME:-}") || system=
case $system in *' trixie') build+=(libheif-dev libheif-plugin-libde265 libheif-plugin-dav1d) ;; esac # older ones: cmake/TowersImages.cmake
case $system in debian*) check+=(chromium) ;; esac # elsewhere there is no package, or only a placeholder
case $system in *' bookworm' | *' jammy') check+=(clang-format-14) ;; esac

wanted=() formatter=no
for group in "${@:-build}"; do
    case $group in
    build) wanted+=("${build[@]}") ;;
    cuda) wanted+=("${cuda[@]}") ;;
    python) wanted+=(python3) ;;
    venv) wanted+=(python3 python3-venv) ;;
    mpi) wanted+=("${build[@]}" "${mpi[@]}") ;;
    wheel) wanted+=("${build[@]}" "${wheel[@]}") ;;
    test) wanted+=("${build[@]}" "${check[@]}") formatter=yes ;;
    bench) wanted+=("${build[@]}" "${bench[@]}") ;;
    peers) wanted+=("${build[@]}" "${peers[@]}") ;;
    cross) wanted+=("${build[@]}" "${cross[@]}") ;;
    *) echo "setup: unknown group '$group'; use build, mpi, cuda, python, venv, wheel, test, bench, peers or cross" >&2; exit 2 ;;
    esac
done

# Compilers and Python may have come from elsewhere than from a package; virtual environments are those of venv.sh's.
is_there() {
    local python=${TOWERS_SYSTEM_PYTHON:-/usr/bin/python3}
    [ -x "$python" ] || python=python3
    case $1 in
    g++) command -v g++ >/dev/null ;;
    python3) python3 -c '' 2>/dev/null ;;
    python3-venv) "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
    *) false ;;
    esac
}

missing=()
for package in "${wanted[@]}"; do
    is_there "$package" || dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
done

# for_an_administrator REASON: print the reason and the command to run, then exit.
for_an_administrator() {
    cat >&2 <<TEXT
setup: ${#missing[@]} packages are missing, and $1.
Ask an administrator to run this command, then start again:

    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}

TEXT
    exit 5
}

install_missing() {
    local run=()
    if ! command -v apt-get >/dev/null; then
        echo "setup: only Debian's and Ubuntu's packages are known; please install the equivalents of: ${missing[*]}" >&2
        exit 5
    fi
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || for_an_administrator "installing them needs root, but you are not root and there is no sudo"
        [ -t 0 ] || sudo -n true 2>/dev/null ||
            for_an_administrator "installing them needs root, but sudo does not let you in without a password, and nobody can type one"
        run=(sudo)
    fi
    echo "installing (a few minutes): ${missing[*]}" >&2
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    run+=(env DEBIAN_FRONTEND=noninteractive apt-get)
    if ! { "${run[@]}" update -qq && "${run[@]}" install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        [ "${run[0]}" != sudo ] || for_an_administrator "they could not be installed with sudo; the end of its output is above"
        echo "setup: the packages could not be installed; the last lines of apt-get are above" >&2
        exit 5
    fi
}

[ ${#missing[@]} = 0 ] || install_missing
if [ $formatter = yes ] && ! "$(dirname "$0")/check/clang_format.sh" --version >/dev/null 2>&1; then
    "$(dirname "$0")/venv.sh" clang-format >/dev/null 2>&1 ||
        echo "setup: pip could not get clang-format 14; the test 'format' will be skipped" >&2
fi
