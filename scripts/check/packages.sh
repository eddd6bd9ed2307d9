#!/usr/bin/env bash
# Build the Debian package on a bare machine of each suite (scripts/check/fresh_machine.sh), check it by lintian, install it on another bare
# machine and run the quickstart's training there for one epoch, and programs of libtowers in C and in Python without PyTorch. Then
# install the wheel of scripts/wheel.sh on a third one, which has Python and NumPy alone, and train with it. Prints a line for each step; logs are
# kept beside the machines. Needs root, debootstrap and a network.
# usage: scripts/check/packages.sh [--wheel FILE] [bookworm|trixie]...     --wheel: this wheel alone, and no .deb
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/check/fresh_machine.sh
wheel='' debian=yes
[ "${1:-}" != --wheel ] || { wheel=$(realpath "$2") debian=no && shift 2; }
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)
install='apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends'

# step WHAT COMMAND: run it on the machine as root; the log's end if it fails
step() {
    local log=$fresh/$suite/packages-$1.log start=$SECONDS
    if ! machine_run root "$2" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "$suite: $1 failed" >&2
        exit 1
    fi
    echo "$suite: $1: $((SECONDS - start)) s: $(tail -n 1 "$log")"
}

packages_debian() {
    machine_make packages-build
    machine_files root towers
    step build "cd towers && scripts/setup.sh build && cmake --preset cpu -DCMAKE_INSTALL_PREFIX=/usr && cmake --build build"
    step package "$install dpkg-dev file lintian >/dev/null && cd towers/build && cpack -G 'DEB;TGZ' && ls towers_*.deb towers-*.tar.gz"
    step lintian "cd towers/build && lintian --fail-on error,warning towers_*.deb && echo no error and no warning"
    cp "$machine"/root/towers/build/towers_*.deb "$fresh/$suite/"
    machine_make packages-use
    mv "$fresh/$suite"/towers_*.deb "$machine/root/"
    step install "$install ./towers_*.deb dataset-fashion-mnist && towers version && cp -r /usr/share/doc/towers/examples . && ls /usr/share/doc/towers/README.md"
    step train "towers train inception_mini --towers 2 --epochs 1 --experiment first"
    step library "$install gcc libc6-dev pkg-config >/dev/null && gcc examples/library/classify.c \$(pkg-config --cflags --libs towers) -o classify && ldd classify | grep libtowers && ./classify runs/first runs/first/first-batch.jpg"
    step python "$install python3-venv python3-numpy python3-setuptools python3-wheel >/dev/null && python3 -m venv --system-site-packages venv &&
        venv/bin/pip install -q --no-index --no-build-isolation examples/python && venv/bin/pip list 2>/dev/null | tail -n +3 | xargs &&
        venv/bin/python -c 'import towers; n = towers.Network(\"runs/first\"); print(n.classify([open(\"runs/first/first-batch.jpg\", \"rb\").read()]))'"
    step remove "apt-get remove -y -qq towers && ! command -v towers"
}

# The program is the wheel's: nothing but Python, NumPy and the data is installed.
packages_wheel() {
    machine_make packages-wheel
    cp "$1" "$machine/root/"
    step wheel-install "$install python3-venv python3-numpy dataset-fashion-mnist >/dev/null && python3 -m venv --system-site-packages venv && venv/bin/pip install -q --no-index ./towers-*.whl && venv/bin/towers version | head -n 1"
    step wheel-train "venv/bin/towers train inception_mini --towers 2 --epochs 1 --experiment first"
    step wheel-python "venv/bin/python -c 'import towers; run = towers.Run(\"runs/first\"); print(run.epochs[\"test_top1\"], run.network().predict(\"runs/first/first-batch.jpg\").top(1))'"
}

[ -n "$wheel" ] || { scripts/wheel.sh && wheel=$(echo build-wheel/dist/towers-*.whl); } # this machine's, for every suite
for suite in "${suites[@]}"; do
    machine_begin "$suite"
    [ $debian = no ] || packages_debian
    packages_wheel "$wheel"
done
