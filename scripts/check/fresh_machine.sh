# shellcheck shell=bash
# Source this: bare Debian machines in folders, made with debootstrap, for check_fresh.sh and check_onednn.sh. Needs root.
#
#   machine_begin SUITE          checks the requirements; makes the bare system of bookworm or trixie if it does not exist
#   machine_make NAME            $machine: a fresh copy of it; an older machine of that name is removed
#   machine_run USER COMMAND     runs a command line there, in the user's home
#   machine_files USER FOLDER    copies the working tree's files, tracked or not ignored, into FOLDER of the user's home
#
# Everything, including downloaded packages, is kept below the user's cache (TOWERS_FRESH names another folder). A command runs in
# mount and process namespaces of its own, so nothing stays mounted or running afterwards. It uses this machine's network, with the
# proxies, mirrors and certificates of its apt and pip configuration.

certificates=/etc/ssl/certs/ca-certificates.crt # copied under another name, which ca-certificates does not overwrite

machine_begin() {
    suite=$1
    fresh=${TOWERS_FRESH:-${XDG_CACHE_HOME:-$HOME/.cache}/towers/fresh}
    [ "$(id -u)" = 0 ] || { echo "making a machine needs root (mount, chroot)" >&2; exit 5; }
    for program in debootstrap unshare pivot_root setpriv; do
        command -v "$program" >/dev/null || { echo "making a machine needs $program" >&2; exit 5; }
    done
    bare=$fresh/$suite/bare debs=$fresh/$suite/debs
    mkdir -p "$debs/partial"
    [ -d "$bare" ] || machine_debootstrap
}

# The mirrors of this machine's apt, one per line: address and suite, with Debian's three components.
machine_mirrors() {
    local here
    here=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || return 0
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        awk -v here="$here" -v suite="$suite" '$2 ~ "^" here "(-updates|-security)?$" { sub(here, suite, $2); print $1, $2 }' | sort -u
}

machine_debootstrap() {
    local mirror log=$fresh/$suite/debootstrap.log
    echo "making a bare $suite in $bare" >&2
    rm -rf "$bare.new"
    mirror=$(machine_mirrors | awk -v suite="$suite" '$2 == suite { print $1; exit }')
    if ! debootstrap --variant=minbase --cache-dir="$debs" "$suite" "$bare.new" ${mirror:+"$mirror"} >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "debootstrap failed" >&2
        exit 1
    fi
    machine_mirrors | awk '{ print "deb", $1, $2, "main" }' >"$bare.new/mirrors"
    [ ! -s "$bare.new/mirrors" ] || cp "$bare.new/mirrors" "$bare.new/etc/apt/sources.list"
    rm "$bare.new/mirrors"
    apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Check-Date|Retries)' >"$bare.new/etc/apt/apt.conf.d/99host" || true
    printf '#!/bin/sh\nexit 101\n' >"$bare.new/usr/sbin/policy-rc.d" # packages start no services
    chmod +x "$bare.new/usr/sbin/policy-rc.d"
    mv "$bare.new" "$bare"
}

machine_make() {
    machine=$fresh/$suite/$1
    rm -rf "$machine"
    cp -a "$bare" "$machine"
    machine_connect
}

# Copy the current network configuration of this machine.
machine_connect() {
    cp -L /etc/resolv.conf /etc/hosts "$machine/etc/"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$machine/etc/"
    [ ! -f "$certificates" ] || { mkdir -p "$machine/etc/ssl" && cp -L "$certificates" "$machine/etc/ssl/host.crt"; }
}

machine_home() {
    [ "$1" = root ] && echo /root || echo "/home/$1"
}

machine_files() {
    local to
    to=$machine$(machine_home "$1")/$2
    mkdir -p "$to"
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file"
    done | tar --create --null --files-from=- | tar --extract --directory="$to"
}

machine_run() {
    local user=$1 path=/usr/local/bin:/usr/bin:/bin:/usr/games name environment=()
    [ "$user" != root ] || path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
        [ -z "${!name:-}" ] || environment+=("$name=${!name}")
    done
    [ ! -f "$machine/etc/ssl/host.crt" ] || environment+=(PIP_CERT=/etc/ssl/host.crt)
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private bash -s "$machine" "$debs" "$user" \
        env -i "HOME=$(machine_home "$user")" "USER=$user" "LOGNAME=$user" "PATH=$path" "${environment[@]}" bash -c "cd && $2" <<'INSIDE'
set -euo pipefail
root=$1 debs=$2 user=$3
shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
[ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup" # Slurm's daemons need it
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount --bind "$debs" "$root/var/cache/apt/archives"
mkdir -p "$root/.host"
cd "$root"
pivot_root . .host # not only chroot: a browser's sandbox needs a real root
# The first process of the namespace must stay root's; otherwise the end of its parent would not end it.
exec chroot . /bin/bash -c 'umount -l /.host && { setpriv --reuid="$0" --regid="$0" --init-groups "$@"; exit; }' "$user" "$@" </dev/null
INSIDE
}
