#!/usr/bin/env bash
# scripts/setup.sh on fake machines: replacements for dpkg-query, apt-get, sudo and id are in a folder that is the whole PATH. Without
# root and sudo it prints the command for an administrator, and that command is complete. Arguments: source folder, binary.
. "$1/tests/support/check.sh"

# machine USER_ID [sudo|sudo-asks]: sets PATH_OF to its programs; packages in `installed` are there
machine() {
    rm -rf bin apt-calls && mkdir bin
    for tool in bash cat grep mktemp tail rm env dirname sed; do ln -s "$(command -v $tool)" bin/; done
    printf '#!/bin/bash\necho %s\n' "$1" >bin/id
    printf '#!/bin/bash\ngrep -qx "${!#}" %s/installed && echo -n installed\n' "$work" >bin/dpkg-query
    printf '#!/bin/bash\necho "$DEBIAN_FRONTEND apt-get $*" >>%s/apt-calls\n' "$work" >bin/apt-get
    [[ ${2:-} != sudo ]] || printf '#!/bin/bash\n[[ $1 == -n ]] && shift\necho "sudo $*" >>%s/apt-calls\n"$@"\n' "$work" >bin/sudo
    [[ ${2:-} != sudo-asks ]] || printf '#!/bin/bash\necho "sudo: a password is required" >&2; exit 1\n' >bin/sudo
    chmod +x bin/*
}
setup() {
    PATH=$work/bin HOME=$work "$BASH" "$source_dir/scripts/setup.sh" "$@" </dev/null >out 2>err
    status=$?
}
printf '%s\n' gcc cmake ninja-build pkg-config >installed

for sudo in '' sudo-asks; do
    machine 1000 $sudo
    setup build
    [[ $status == 5 ]] || complain "without root, ${sudo:-no sudo}: exit $status, wanted 5"
    command=$(grep -o 'apt-get update && apt-get install -y .*' err)
    [[ $command == *' libdnnl-dev '*' dataset-fashion-mnist'* && $command != *' gcc '* ]] ||
        complain "without root, ${sudo:-no sudo}: the command for an administrator is '$command': $(cat err)"
    grep -qi administrator err || complain "no word about an administrator: $(cat err)"
    [[ $(grep -c 'not found' err) == 0 && ! -e apt-calls ]] || complain "apt-get or sudo was tried: $(cat err)"
    # An administrator runs it: then nothing is missing.
    tr ' ' '\n' <<<"${command##*recommends}" >>installed
    setup build
    [[ $status == 0 && ! -s err ]] || complain "the command for an administrator left something out: $(cat err)"
    printf '%s\n' gcc cmake ninja-build pkg-config >installed
done

machine 0
setup build
[[ $status == 0 ]] || complain "as root: exit $status: $(cat err)"
[[ $(head -n 1 apt-calls) == 'noninteractive apt-get update'* && $(tail -n 1 apt-calls) == 'noninteractive apt-get install'*libyaml-dev* ]] ||
    complain "as root: $(cat apt-calls)"
machine 1000 sudo
setup build
[[ $status == 0 ]] || complain "with sudo: exit $status: $(cat err)"
grep -q '^sudo env DEBIAN_FRONTEND=noninteractive apt-get install' apt-calls || complain "with sudo: $(cat apt-calls)"
setup house
[[ $status == 2 ]] || complain "an unknown group: exit $status, wanted 2"

# Every script that needs Python, or packages from PyPI, asks for it before anything else that takes long: it names a group with Python, or
# sources or calls another one that does. gpu_check.sh runs where there is no network; its own first line says what it needs.
while read -r script; do
    asked=$(grep -nE '^[^#]*(setup\.sh"? [a-z ]*(python|venv|cuda|test|peers|bench)|peers\.sh|venv\.sh)' "$script" | head -n 1 | cut -d: -f1)
    used=$(grep -nE '^[^#]*(python3|"\$python") ' "$script" | grep -vE 'python3\)|install' | head -n 1 | cut -d: -f1)
    [[ -z $used || ${asked:-9999} -le $used ]] || complain "$(basename "$script") runs Python in line $used and asks setup.sh for it in ${asked:-none}"
done < <(find "$source_dir/scripts" -name '*.sh' ! -name setup.sh ! -name venv.sh ! -name gpu_check.sh)

# On a machine with neither Python nor a C++ compiler, what people are told to run stops at once and names the packages: no program was
# started before.
rm -rf photos && mkdir photos
printf '#!/bin/bash\necho "$*" >>%s/started\n' "$work" >program && chmod +x program
lacks() { # PACKAGE SCRIPT ARGUMENTS...
    machine 1000
    rm -f started
    PATH=$work/bin HOME=$work XDG_CACHE_HOME=$work/photos TOWERS_SYSTEM_PYTHON=$work/none "$BASH" "$source_dir/scripts/$2" "${@:3}" </dev/null >out 2>err
    status=$?
    [[ $status == 5 && $(grep -o 'apt-get install .*' err) == *" $1"* ]] || complain "$2 without $1: exit $status: $(tail -n 3 out err)"
    [[ ! -e started ]] || complain "$2 without $1: the program ran first: $(cat started)"
}
lacks python3 train_wgan.sh "$work/program"
lacks python3 train_tf2016.sh 20 "$work/program"
lacks python3 measure/train_photos.sh --minutes 0 "$work/program"
lacks python3 first_hour.sh "$work"
lacks python3 measure/wgan_scaling.sh "$work/program"
lacks python3-venv venv.sh onnx
lacks g++ cuda_from_pip.sh "$work/cuda"

# Packages that Debian 13 has no more stay out.
! grep -nE 'libclang-rt-[0-9]' "$source_dir/scripts/setup.sh" || complain "a package with a version in its name"

# The builds by hand have no tests, whose library they do not ask for.
presets=$(grep -oE 'cmake --preset [a-z]+' "$source_dir/docs/building.md" | sort -u)
[[ $presets == *cuda* ]] || complain "the presets of building.md: '$presets'"
while read -r _ _ preset; do
    grep "\"name\": \"$preset\"" "$source_dir/CMakePresets.json" | grep -q '"TOWERS_TESTS": "OFF"' || complain "the preset $preset of building.md builds tests"
done <<<"$presets"

# What pip downloads is compared with hashes.
! grep -nE '\bpip"? +(install|download) ' "$source_dir"/scripts/*.sh "$source_dir"/scripts/*/*.sh | grep -vE -- '--(require-hashes|no-index)' || complain "a download without hashes"
! grep -nE '^[^# ].*==[^\\]*$' "$source_dir"/scripts/requirements/*.txt || complain "a package without a hash"

# The container's context is what git tracks: a build in the clone stays out.
while read -r ignored; do
    ignored=${ignored%/}
    [[ $ignored == /* ]] && ignored=${ignored#/} || ignored="**/$ignored" # without a slash in front: in every folder
    grep -qxF -- "$ignored" "$source_dir/.containerignore" || complain ".containerignore lacks $ignored of .gitignore"
done <"$source_dir/.gitignore"
grep -qx '.git' "$source_dir/.containerignore" || complain ".containerignore lacks .git"

check_end "setup.sh: root, sudo, neither; the command for an administrator is complete; pip compares hashes; scripts ask first"
