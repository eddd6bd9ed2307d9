#!/usr/bin/env python3
"""The C headers of Python wheels, without the wheels: libraries of hundreds of megabytes have headers of a few kilobytes.

usage: tests/support/wheel_headers.py FOLDER NAME==VERSION...

pip says where a wheel lies; its headers are read out of it by ranges, into FOLDER/NAME-VERSION, once. Prints the folders to include,
one on a line. Exit status 3: pip or the server could not be reached.
"""
import io
import json
import os
import subprocess
import sys
import urllib.request
import zipfile

BLOCK = 1 << 20


class RemoteFile(io.RawIOBase):
    """A file that a web server gives in ranges."""

    def __init__(self, url):
        super().__init__()
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
            self.size = int(answer.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        wanted = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            if answer.status != 206:
                raise OSError(f"the server sent no range of {self.url}")
            data = answer.read()
        buffer[:len(data)] = data
        self.at += len(data)
        return len(data)


def address(requirement):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:",
               "--report=-", requirement]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(report)["install"][0]["download_info"]["url"]


def headers_get(requirement, folder):
    """Folders in which the headers' own includes are found. The last name to be written is that of the folder: it is whole or not there."""
    kept = os.path.join(folder, requirement.replace("==", "-"))
    if not os.path.isdir(kept):
        partial = f"{kept}.{os.getpid()}"
        with zipfile.ZipFile(io.BufferedReader(RemoteFile(address(requirement)), BLOCK)) as wheel:
            for name in wheel.namelist():
                if "/include/" in name and name.endswith((".h", ".hpp")):
                    wheel.extract(name, partial)
        try:
            os.rename(partial, kept)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            if not os.path.isdir(kept):
                raise
    return sorted(path for path, folders, _ in os.walk(kept) if os.path.basename(path) == "include")


def main():
    if len(sys.argv) < 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    try:
        for requirement in sys.argv[2:]:
            print("\n".join(headers_get(requirement, sys.argv[1])))
    except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as problem:
        print(getattr(problem, "stderr", None) or problem, file=sys.stderr)
        return 3
    return 0


sys.exit(main())
