#!/usr/bin/env bash
# The container file in a clone with a build in it, without a container engine: its context is what .containerignore leaves of the tree;
# the commands of its first stage are run there, but for those of apt; its second stage's program is that of the .deb, and trains.
# usage: check_container.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
needs_python
command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null || { echo "SKIPPED: dpkg-dev and file are not installed" >&2; exit 77; }
grep -qs '^ID=debian' /etc/os-release || { echo "SKIPPED: the container is Debian's" >&2; exit 77; }
recipe=$source_dir/examples/container/Containerfile

# A clone that was built elsewhere, later than its files: a build folder that came along would be taken for done.
mkdir clone
(cd "$source_dir" && tar cf - --exclude='./build*' --exclude=./.git --exclude=./runs .) | tar xf - -C clone
mkdir -p clone/build/CMakeFiles clone/build-test clone/runs/first clone/.git clone/examples/python/towers/__pycache__
echo 'CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere' >clone/build/CMakeCache.txt
touch clone/build/{build.ninja,towers} clone/build-test/towers clone/runs/first/args.yaml clone/.git/HEAD clone/examples/python/towers/__pycache__/run.pyc
ignored=$(cat clone/.containerignore)

context() { rm -rf context && python3 "$source_dir/tests/support/container_context.py" clone context; }
context
for path in build build-test runs .git examples/python/towers/__pycache__; do
    [[ ! -e context/$path ]] || complain "$path is in the context"
done
diff <(cd context && find . -type f | sort) <(cd clone && find . -type f -not -path './build*' -not -path './runs/*' -not -path './.git/*' -not -path '*/__pycache__/*' \
    -not -path './third_party/*' -not -path './.cache/*' | sort) >"$out" || complain "the context lacks files of the tree, or has others: $(head "$out")"
[[ $(readlink "$source_dir/.dockerignore") == .containerignore ]] || complain "docker reads .dockerignore, which is not that of podman"

# ---- the stages: FROM, WORKDIR, COPY and RUN of one line each; anything else is a change that this test must learn
mapfile -t lines < <(grep -vE '^(#|$)' "$recipe")
stage=0 made=$work/made
mkdir "$made"
for line in "${lines[@]}"; do
    case $line in
    FROM*debian:trixie-slim*) stage=$((stage + 1)) ;;
    'WORKDIR /towers') ;;
    'COPY scripts/setup.sh scripts/') [[ -x context/scripts/setup.sh ]] || complain "the context has no scripts/setup.sh" ;;
    'RUN scripts/setup.sh build && apt-get install '*)
        for package in ${line##*--no-install-recommends}; do apt-cache show "$package" >"$out" 2>&1 || complain "there is no package $package"; done
        bash -n context/scripts/setup.sh || complain "scripts/setup.sh"
        ;;
    'COPY . .') cp -a context/. "$made/" ;;
    'RUN cmake '*)
        command=${line#RUN }
        ;;
    'COPY --from=build /towers/build/towers_*.deb /tmp/') ;;
    'RUN apt-get update '*'/tmp/towers_*.deb dataset-fashion-mnist '*) ;;
    'ENTRYPOINT ["towers"]') ;;
    *) complain "the container file has a line that this test does not run: $line" ;;
    esac
done
((stage == 2)) && [[ -n ${command:-} ]] || complain "the container file has $stage stages"
(cd "$made" && eval "$command") >"$out" 2>&1 || complain "$command: $(tail -n 5 "$out")"
deb=$(ls "$made"/build/towers_*.deb 2>/dev/null)
[[ $(dpkg-deb -f "$deb" Package Version 2>&1 | paste -sd ' ') == "Package: towers Version: $("$towers" version | awk 'NR == 1 { print $2 }')"* ]] || complain "the .deb: $(dpkg-deb -f "$deb")"
dpkg-deb -x "$deb" installed || complain "the .deb cannot be unpacked"
installed/usr/bin/towers train fashion_cnn --towers 2 --dataset synthetic --classes 3 --img-size 32 --max-steps 3 -b 8 --experiment contained --quiet 2>"$err" || complain "its program: $(cat "$err")"

# ---- without the list the build of elsewhere comes along, and cmake refuses it
: >clone/.containerignore
context
(cd context && cmake --preset cpu -DTOWERS_TESTS=OFF) >"$out" 2>&1 && complain "this test does not see a build that came along"
[[ $ignored ]] || complain ".containerignore is empty"
check_end "the container file builds in a clone with a build, and its program trains"
