#!/usr/bin/env bash
# One version, that of project() in CMakeLists.txt: the program, the library, what CMake and pkg-config say of it, the .deb, the package
# for Python and the newest release of CHANGELOG.md have it. usage: check_version.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
needs_python
build=$(dirname "$towers")
version=$(sed -n 's/^project(towers VERSION \([0-9.]*\).*/\1/p' "$source_dir/CMakeLists.txt")
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || complain "CMakeLists.txt has no version: '$version'"

has() { # WHAT FOUND
    [[ $2 == "$version" ]] || complain "$1 has version '$2', CMakeLists.txt $version"
}
has "towers version" "$("$towers" version | awk 'NR == 1 { print $2 }')"
has "towers man --json" "$("$towers" man --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')"
has libtowers "$(python3 -c 'import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).towers_version; f.restype = ctypes.c_char_p; print(f().decode())' "$build/libtowers.so.0")"
has "the library's file" "$(basename "$(readlink -f "$build/libtowers.so")" | sed 's/^libtowers\.so\.//')"
has towers.pc "$(sed -n 's/^Version: //p' "$build/generated/towers.pc")"
has "the package for CMake" "$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$build/generated/towers-config-version.cmake")"
has "the .deb" "$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")/\1/p' "$build/CPackConfig.cmake")"
has "the package for Python" "$(sed -n "s/^VERSION = '\(.*\)'$/\1/p" "$source_dir/examples/python/towers/commands.py")"
grep -q 'version = {attr = "towers.commands.VERSION"}' "$source_dir/examples/python/pyproject.toml" || complain "pyproject.toml has a version of its own"

# A release is named before it is made; what is not released yet stands above it.
read -r -a releases < <(sed -n 's/^## \[\([^]]*\)\].*/\1/p' "$source_dir/CHANGELOG.md" | head -n 2 | paste -sd ' ')
[[ ${releases[0]} == "$version" || ${releases[0]} == Unreleased ]] || complain "the newest release of CHANGELOG.md is ${releases[0]}, CMakeLists.txt has $version"

check_end "version $version everywhere"
