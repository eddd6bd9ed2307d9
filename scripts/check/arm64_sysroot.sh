#!/usr/bin/env bash
# Make a folder with the headers and libraries of Debian's arm64, for cross builds (cmake/arm64.cmake) and for qemu-aarch64 to run them
# with: apt downloads this Debian's packages and all that they need, and they are unpacked. It changes nothing outside of the folder,
# needs no root, and does nothing if the folder is complete. Prints the folder.
# usage: scripts/check/arm64_sysroot.sh [FOLDER]   (default: in the user's cache)
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/towers/arm64}
triplet=usr/lib/aarch64-linux-gnu

# The libraries of setup.sh's group `build`, and what the tests need.
mapfile -t wanted < <(sed -n '/^build=(/,/)$/p' scripts/setup.sh | grep -oE '\bz?lib[a-z0-9.+-]*-dev\b')
wanted+=(libc6-dev libcmocka-dev)
mark="$(. /etc/os-release && echo "${VERSION_CODENAME:-}") ${wanted[*]}" # the libraries of an older Debian count for nothing
if [ "$(cat "$root/wanted" 2>/dev/null)" = "$mark" ]; then
    echo "$root"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "arm64_sysroot: only Debian's packages are known" >&2; exit 5; }

# apt with a state of its own: nothing is installed there, so that it fetches all that a package needs.
state=$root.apt
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$state" -o Dir::State::status="$state/status" \
        -o Dir::Cache="$state/cache" -o APT::Sandbox::User= "$@"
}
rm -rf "$root" "$state"
mkdir -p "$root"/usr/{bin,sbin,lib} "$state"/{lists/partial,cache/archives/partial}
: >"$state/status"
for folder in bin sbin lib; do ln -s "usr/$folder" "$root/$folder"; done
if ! { apt update && apt install -y --download-only --no-install-recommends "${wanted[@]}"; } >"$state/log" 2>&1; then
    tail -n 5 "$state/log" >&2
    echo "arm64_sysroot: the packages of arm64 could not be downloaded" >&2
    exit 5
fi

for deb in "$state"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar --extract --keep-directory-symlink --directory="$root"
    dpkg-deb --ctrl-tarfile "$deb" | tar --extract --to-stdout ./shlibs >>"$root/shlibs" 2>/dev/null || true # deb-shlibs(5), if it has libraries
done
find "$root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do # libz.so -> /lib/...: below the folder
    ln -sfnr "$root$(readlink "$link")" "$link"
done
ln -sr "$root/$triplet"/blas/libblas.so* "$root/$triplet"/lapack/liblapack.so* "$root/$triplet/" # update-alternatives' links
rm -rf "$state"
echo "$mark" >"$root/wanted"
echo "$root"
