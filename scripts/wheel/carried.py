#!/usr/bin/env python3
"""Refuses libraries that a wheel may not carry, and collects the licenses of those that it does.

usage: scripts/wheel/carried.py PROGRAMS SOURCES TO

PROGRAMS is a folder of programs and libraries; what they need, and what that needs, must be in carried.txt or a part of every system
(PEP 600). The license of each goes to the folder TO: the file in SOURCES of what was built from sources, else that of Debian's package.
"""
import os
import re
import shutil
import subprocess
import sys

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "carried.txt")
# glibc, the compiler's runtime and zlib: https://github.com/pypa/auditwheel, manylinux-policy.json
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z|nsl|util|resolv)\.so\.\d+|ld-linux.*|linux-vdso.*")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def allowed():
    with open(LIST, encoding="utf-8") as file:
        return dict(line.split(maxsplit=1) for line in file.read().splitlines() if line and not line.startswith("#"))


def needed(folder):
    """The libraries that are no part of a system, by their names."""
    names = set()
    for file in os.listdir(folder):
        for line in output("ldd", os.path.join(folder, file)).splitlines():
            name = os.path.basename(line.split()[0])
            if "not found" in line:
                sys.exit(f"carried: {file} needs {name}, which is not found")
            if not SYSTEM.fullmatch(name) and name not in os.listdir(folder):
                names.add(name)
    return sorted(names)


def license_file(name, sources):
    """Where it comes from, and the file of its license."""
    stem = name.split(".so")[0]
    for source in (stem, stem.removeprefix("lib")):
        if os.path.exists(os.path.join(sources, source)):
            return source, os.path.join(sources, source)
    package = output("dpkg-query", "--search", f"*/{name}").split(":")[0]
    return package, os.path.realpath(f"/usr/share/doc/{package}/copyright")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    programs, sources, to = sys.argv[1:]
    licenses, names = allowed(), needed(programs)
    wrong = [name for name in names if name.split(".so")[0] not in licenses]
    if wrong:
        sys.exit(f"carried: {', '.join(wrong)}: not in scripts/wheel/carried.txt, which names what a wheel may carry")
    with open(os.path.join(to, "CARRIED"), "w", encoding="utf-8") as summary:
        print("This package carries these libraries; the file beside this one that has the last name has the license.\n", file=summary)
        for name in names:
            origin, text = license_file(name, sources)
            shutil.copy(text, os.path.join(to, origin))
            print(f"{name:20} {licenses[name.split('.so')[0]]:44} {origin}", file=summary)
            with open(text, encoding="utf-8") as file:  # Debian's names the common ones by their place
                for common in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", file.read()):
                    shutil.copy(os.path.realpath(f"/usr/share/common-licenses/{common}"), os.path.join(to, common))


if __name__ == "__main__":
    main()
