#!/usr/bin/env python3
"""What a container's build sees of a folder: copies the files that .containerignore leaves in, as podman and docker read it
(https://docs.docker.com/build/concepts/context/#dockerignore-files): patterns of the whole path, ** for any folders, what a matched
folder holds is matched, the last match wins, and ! takes a file in again.

usage: tests/support/container_context.py FOLDER TO
"""
import os
import re
import shutil
import sys


def expression(pattern):
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.strip("/"))
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts) + "(?:/.*)?")


def rules(folder):
    with open(os.path.join(folder, ".containerignore"), encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [(not line.startswith("!"), expression(line.lstrip("!"))) for line in lines if line and not line.startswith("#")]


def main():
    folder, to = sys.argv[1:]
    ignored = rules(folder)
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(place, name), folder)
            left_out = False
            for leaves_out, rule in ignored:
                if rule.fullmatch(path):
                    left_out = leaves_out
            if not left_out:
                os.makedirs(os.path.dirname(os.path.join(to, path)), exist_ok=True)
                shutil.copy2(os.path.join(folder, path), os.path.join(to, path), follow_symlinks=False)


if __name__ == "__main__":
    main()
