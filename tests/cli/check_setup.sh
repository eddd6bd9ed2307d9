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

# What is installed is left as it is, as docs/building.md says; an environment is made anew when its list has changed.
[[ $(grep -o 'scripts that install ([^)]*)' "$source_dir/docs/building.md") == 'scripts that install (`setup.sh`, `venv.sh`, `cuda_from_pip.sh`)' ]] ||
    complain "docs/building.md says of other scripts that they can be run again" # check_cuda_from_pip.sh runs the third twice
machine 0
setup build && setup build
[[ $(grep -c ' install ' apt-calls) == 2 ]] || complain "nothing was installed, so both runs should have tried: $(cat apt-calls)"
tr ' ' '\n' <apt-calls >>installed
setup build
[[ $status == 0 && $(grep -c ' install ' apt-calls) == 2 ]] || complain "setup.sh installs again what is there: $(tail -n 1 apt-calls)"
cat >system-python <<SH
#!$BASH
[[ "\$1 \$2" == "-m venv" ]] || exit 0
mkdir -p "\$3/bin"
printf '#!%s\necho "\$*" >>%s/pip-runs\n' "$BASH" "$work" >"\$3/bin/python"
chmod +x "\$3/bin/python"
SH
chmod +x system-python
for runs in 1 1 2; do
    XDG_CACHE_HOME=$work/environments TOWERS_SYSTEM_PYTHON=$work/system-python "$source_dir/scripts/venv.sh" onnx >"$out" 2>"$err" || complain "venv.sh: $(cat "$err")"
    [[ $(cat "$out") == "$work/environments/towers/onnx/bin/python" && $(wc -l <pip-runs) == "$runs" ]] || complain "venv.sh has called pip: $(cat pip-runs)"
    [[ $runs == 2 ]] || { [[ -e seen ]] && echo changed >>environments/towers/onnx/requirements.txt; touch seen; }
done

# The followers of runs say how they are called, and what they need, where their package is missing.
mkdir -p "$work/packages"
for kind in mlflow wandb; do
    echo 'raise ImportError("this machine has none")' >"$work/packages/$kind.py"
    PYTHONPATH=$work/packages PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/scripts/follow_$kind.py" --help >"$out" 2>&1 || complain "follow_$kind.py --help: $(tail -n 1 "$out")"
    grep -q -- --once "$out" || complain "follow_$kind.py --help says: $(cat "$out")"
    PYTHONPATH=$work/packages PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/scripts/follow_$kind.py" runs/one >"$out" 2>&1
    [ $? = 2 ] && grep -q "the Python package $kind[a-z-]* is missing: pip install $kind" "$out" || complain "follow_$kind.py without its package says: $(tail -n 1 "$out")"
done

# CMake names all that is missing at once, with the packages and the way to get them; tests can be left out.
configure() { # MODULE_FOLDER ARGUMENT...
    PKG_CONFIG_LIBDIR=$1 PKG_CONFIG_PATH='' cmake -S "$source_dir" -B "$work/configured" -DTOWERS_CUDA=OFF -DTOWERS_MPI=OFF "${@:2}" >"$out" 2>&1
    local code=$?
    rm -rf "$work/configured"
    tr '\n' ' ' <"$out" | tr -s ' ' >"$out.line"
    return $code
}
mkdir -p "$work/no-modules" "$work/modules"
configure "$work/no-modules" && complain "cmake without libraries succeeds"
grep -q 'not found: libjansson-dev libyaml-dev .* libarchive-dev\. `scripts/setup.sh build` installs them' "$out.line" || complain "cmake without libraries says: $(cat "$out.line")"
for folder in $(pkg-config --variable pc_path pkg-config | tr : ' '); do
    ln -sf "$folder"/*.pc "$work/modules/" 2>/dev/null
done
rm -f "$work/modules/cmocka.pc"
configure "$work/modules" && complain "cmake without cmocka builds tests"
grep -q 'not found: libcmocka-dev\. `scripts/setup.sh test` installs them .*-DTOWERS_TESTS=OFF' "$out.line" || complain "cmake without cmocka says: $(cat "$out.line")"
configure "$work/modules" -DTOWERS_TESTS=OFF || complain "cmake without cmocka and tests: $(tail -n 5 "$out")"
grep '"name": "test"' "$source_dir/CMakePresets.json" | grep -q '"TOWERS_CUDA": "OFF"' || complain "the preset test builds kernels for GPUs where a compiler for them is found"

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

# Before a commit: on a bare machine scripts/check.sh installs first, as its checks need what is installed; without git it says so.
mkdir -p clone/scripts/check clone/scripts/pages clone/tests/support clone/bin
cp "$source_dir/scripts/check.sh" clone/scripts/
cp "$source_dir/scripts/check/changes.sh" clone/scripts/check/
printf '#!/bin/bash\n>installed\n' >clone/scripts/setup.sh
for check in scripts/build.sh scripts/check/format.sh scripts/pages/command_pages.sh scripts/pages/fault_table.sh scripts/pages/python_keywords.py tests/mutants.sh tests/support/on_a_device.sh; do
    printf '#!/bin/bash\n[[ -f installed ]]\n' >clone/$check
done
printf '#!/bin/bash\n[[ $1 != diff ]] || echo page.md\n' >clone/bin/git
chmod +x clone/bin/git clone/scripts/*.sh clone/scripts/*/* clone/tests/*.sh clone/tests/support/*
(cd clone && PATH=$PWD/bin:$PATH scripts/check.sh) >out 2>&1 && ! grep FAILED out >&2 || complain "check.sh on a bare machine: $(cat out)"
printf '#!/bin/bash\nexit 127\n' >clone/bin/git
(cd clone && PATH=$PWD/bin:$PATH scripts/check.sh) >out 2>&1
[[ $? == 2 ]] && grep -q 'needs git, and a clone with the commit before the last$' out || complain "check.sh without git: $(cat out)"

check_end "setup.sh: root, sudo, neither; the command for an administrator is complete; pip compares hashes; scripts ask first; check.sh installs first"
