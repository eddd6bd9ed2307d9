#!/usr/bin/env python3
"""Let clang read every C file of a build with the warnings of the build as errors, without making code: a minute for what gcc does not see.

usage: scripts/check/clang.py [BUILD]    (default: build-test, which must have been built: some headers are made by it)

Exit status 0: no warning; 1: at least one, which was printed; 2: no clang, or no build.
"""
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys


def check(entry):
    command = shlex.split(entry["command"])
    while command and os.path.basename(command[0]) == "ccache":
        command.pop(0)
    command = ["clang", "-fsyntax-only", "-Werror"] + command[1:]
    for option in ("-o", "-MF", "-MT"):
        while option in command:
            at = command.index(option)
            del command[at:at + 2]
    command = [word for word in command if word not in ("-MD", "-c")]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build-test"
    commands = os.path.join(build, "compile_commands.json")
    if not shutil.which("clang") or not os.path.exists(commands):
        print(f"clang and {commands} are needed: see scripts/test.sh", file=sys.stderr)
        return 2
    with open(commands, encoding="utf-8") as text:
        files = {entry["file"]: entry for entry in json.load(text) if entry["file"].endswith(".c")}
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for said in pool.map(check, files.values()):
            bad += bool(said)
            sys.stderr.write(said)
    print(f"clang has read {len(files)} files: {bad} with warnings")
    return 1 if bad or not files else 0


sys.exit(main())
