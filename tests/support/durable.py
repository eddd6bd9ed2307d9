#!/usr/bin/env python3
"""Whether files are published durably: a test of the calls that a program made.

usage: tests/support/durable.py FOLDER TRACE [VOLATILE...]

TRACE is what `strace -f -qq -y -s 0 -e trace=openat,write,writev,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2` wrote of a
program that ran in FOLDER. For each rename: what was written to the file, or to files in the folder, was synced before, and the folder
that has the new name is synced afterwards, so that a power cut leaves the old content or the new one. VOLATILE are targets of which nobody
expects that. Nothing temporary is left in FOLDER. Prints how many renames were seen; exit status 1 if one breaks the rule.
"""
import os
import re
import sys

CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)$")
ON_FILE = re.compile(r"^\d+<([^>]*)>")
NAMES = re.compile(r'(?:(AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"([^"]*)"')


def lines_of(trace):
    """(call, arguments) in the order in which calls ended; a call that another thread interrupted in the trace is put together."""
    begun = {}
    with open(trace, encoding="utf-8", errors="replace") as file:
        for line in file:
            match = CALL.match(line.rstrip("\n"))
            if not match:
                continue
            task, call, rest = match.groups()
            if rest.endswith("<unfinished ...>"):
                begun[task] = rest
                continue
            yield call, begun.pop(task, "") + rest if "resumed>" in line else rest


def named(match, folder):
    base = match.group(2) or folder
    return os.path.normpath(os.path.join(base, match.group(3)))


def main():
    if len(sys.argv) < 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    folder, volatile = os.path.realpath(sys.argv[1]), {os.path.realpath(name) for name in sys.argv[3:]}
    dirty, awaited, renames, bad = set(), {}, 0, 0
    for call, text in lines_of(sys.argv[2]):
        if not re.search(r"= \d", text):
            continue
        on = ON_FILE.match(text)
        if call in ("write", "writev", "pwrite64", "ftruncate") and on and on.group(1).startswith(folder):
            dirty.add(on.group(1))
        elif call in ("fsync", "fdatasync") and on:
            dirty.discard(on.group(1))
            awaited.pop(on.group(1), None)
        elif call.startswith("rename"):
            source, target = (named(match, folder) for match in list(NAMES.finditer(text))[:2])
            if not target.startswith(folder) or target in volatile:
                continue
            renames += 1
            lost = sorted(path for path in dirty if path == source or path.startswith(source + "/"))
            if lost:
                print(f"{target}: {', '.join(lost)} was renamed before it was synced")
                bad += 1
            awaited[os.path.dirname(target)] = target
    for parent, target in sorted(awaited.items()):
        print(f"{target}: its folder {parent} was not synced afterwards")
        bad += 1
    for path, folders, names in os.walk(folder):
        for name in folders + names:
            if name.startswith(".tmp"):
                print(f"{os.path.join(path, name)} is left")
                bad += 1
    print(f"{renames} files were published")
    return 1 if bad or not renames else 0


sys.exit(main())
