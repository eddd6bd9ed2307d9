#!/usr/bin/env bash
# Run the README's two commands, scripts/quickstart.sh and scripts/test.sh, on bare Debian machines, as a newcomer would. Each machine
# is made by debootstrap in a folder (scripts/check/fresh_machine.sh), the last commit of this repository is cloned into it, and both
# commands are run there
#   root   as root
#   sudo   as a user who may use sudo
#   user   as a user who may not: first with nothing installed, where each command must exit with 5 and print the command for an
#          administrator; then root runs that command, and both commands must work
# Prints a table and the tests that were skipped; exits 0 only if every row is as expected and tests/skips.txt accepts every skip.
# Needs root, debootstrap and a network; about 20 minutes per kind of user on two idle cores. Keeps logs and machines, 3 GB each.
# usage: scripts/check/fresh.sh [--user root|sudo|user]... [--command quickstart|test]... [--full] [--drop] [bookworm|trixie]...
#   --full    root runs scripts/test.sh --full: sanitizers, fuzzers and clang as well
#   --drop   removes each machine after its last command
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/check/fresh_machine.sh

users=() commands=() suites=() full=no drop=no
while [ $# -gt 0 ]; do
    case $1 in
    --user) users+=("$2") && shift ;;
    --command) commands+=("$2") && shift ;;
    --full) full=yes ;;
    --drop) drop=yes ;;
    bookworm | trixie) suites+=("$1") ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ ${#users[@]} -gt 0 ] || users=(root sudo user)
[ ${#commands[@]} -gt 0 ] || commands=(quickstart test)
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)

work=$(mktemp -d)
touch "$work/start" # newer logs are from this call
trap 'rm -rf "$work"' EXIT
bad=0

# Make a machine with a clone of this repository in its user's home.
fresh_make() { # KIND
    local home
    machine_make "fresh-$1"
    who=root
    if [ "$1" != root ]; then
        who=newcomer
        machine_run root "useradd --create-home --shell /bin/bash $who"
    fi
    if [ "$1" = sudo ]; then
        machine_run root 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends sudo' \
            >"$logs/sudo.log" 2>&1
        echo "$who ALL=(ALL) NOPASSWD: ALL" >"$machine/etc/sudoers.d/$who"
    fi
    home=$machine$(machine_home "$who")
    git clone --quiet --no-hardlinks . "$home/towers"
    machine_run root "chown -R $who: $(machine_home "$who")/towers"
}

packages() {
    machine_run root 'dpkg-query -W | wc -l'
}

# Run one command and print one row. The size is that by which the machine's folder has grown.
fresh_row() { # KIND COMMAND EXPECTED WHEN
    local log=$logs/$1-$2${4:+-bare}.log call=$2.sh status=0 start=$SECONDS before size note=''
    [ "$full $1 $2" != 'yes root test' ] || call+=' --full'
    before=$(packages)
    size=$(du -sm "$machine" | cut -f 1)
    machine_run "$who" "cd towers && scripts/$call" >"$log" 2>&1 || status=$?
    [ $status = "$3" ] || { bad=1; note='**unexpected**; '; }
    case $2-$3 in
    *-5) grep -q 'apt-get update && apt-get install -y' "$log" && note+='names the command' || { bad=1; note+='**no command for an administrator**'; } ;;
    quickstart-*) note+=$(grep -o '^test accuracy [0-9.]* %' "$log" | tail -n 1) ;;
    test-*)
        note+=$(grep -oE '[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | paste -sd ';' || true)
        note+=$(awk '/warnings of the compiler: / { count += $5 } END { if (count) print ", **" count " warnings of the compiler**" }' "$log")
        if [ $status = 0 ]; then
            cp "$machine$(machine_home "$who")/towers/build-test/skipped.txt" "$logs/$1-skipped.txt"
            note+=", $(wc -l <"$logs/$1-skipped.txt") skipped"
            if ! scripts/check/skips.sh unexpected "$logs/$1-skipped.txt" >"$work/unexpected"; then
                bad=1
                note+=', **not in tests/skips.txt:** '$(paste -sd ';' "$work/unexpected")
            fi
        fi
        ;;
    esac
    printf '| %s | %s%s | %s | %s | %s | %s | %s | %s MB | %s |\n' "$suite" "$1" "${4:+, $4}" "$call" "$3" "$status" \
        "$((SECONDS - start)) s" $(($(packages) - before)) $(($(du -sm "$machine" | cut -f 1) - size)) "$note"
}

fresh_user() { # KIND
    local command
    fresh_make "$1"
    if [ "$1" = user ]; then
        for command in "${commands[@]}"; do fresh_row user "$command" 5 'nothing installed'; done
        for command in "${commands[@]}"; do
            machine_run root "export DEBIAN_FRONTEND=noninteractive; $(grep -o 'apt-get update && .*' "$logs/user-$command-bare.log")" \
                >"$logs/administrator.log" 2>&1 || { tail -n 5 "$logs/administrator.log" >&2; bad=1; }
        done
    fi
    for command in "${commands[@]}"; do fresh_row "$1" "$command" 0 ''; done
    [ $drop = no ] || rm -rf "$machine"
}

echo "commit $(git rev-parse --short HEAD), $(date +%F), $(nproc) cores"
echo
echo '| Debian | user | command | expected | exit | time | packages | disk | result |'
echo '|---|---|---|---:|---:|---:|---:|---:|---|'
for name in "${suites[@]}"; do
    machine_begin "$name"
    logs=$fresh/$suite/logs
    mkdir -p "$logs"
    for kind in "${users[@]}"; do fresh_user "$kind"; done
done
echo
echo 'Skipped by the tests, with the reason:'
echo
for name in "${suites[@]}"; do
    find "$fresh/$name/logs" -name '*-skipped.txt' -newer "$work/start" -exec cat {} + | sort -u | sed "s/^/- $name: /"
done
exit $bad
