#!/usr/bin/env python3
"""What towers does when a network, a server or the disk of its cache fails: each fault is made, by the server of tests/support/http_server.py,
and the table of docs/results/network-faults.md says what was seen. tests/cli/check_network_faults.sh calls it with --check.

usage: network_faults.py BINARY            write the table
       network_faults.py BINARY --check    compare it with what is seen: exit 1 if a row differs
The name server that is gone and the disk that fills up need root, for namespaces of their own; without it, their rows stay as they are.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs/results/network-faults.md")
TARS = "tar/set-{train-{000000..000005},val-000000}.tar"
ONE = "tar/set-train-000000.tar"
MDS = "mds/{train,val}/"
TRAIN = ["train", "googlenet", "--no-aux", "--img-size", "32", "-b", "16", "--device", "cpu", "--towers", "2", "--processes", "1", "--threads", "1", "--eval-crop", "1",
         "--classes", "3", "--summary-interval", "0", "--output-dir", "runs"]
INFO = ["data", "info"]

# What fails; what the server does; its word for that and the set; what is called, with which bounds; needs root.
ROWS = [
    ("time-out", "sends a third of each object, then nothing", f"stuck/{TARS}", INFO, ["--stall", "1", "--net-timeout", "10"]),
    ("slow server", "sends 50 bytes a second", f"trickle/{ONE}", INFO, ["--stall", "2", "--net-timeout", "12"]),
    ("slow server", "sends 20 kB, then waits, again and again", f"slow/{TARS}", INFO, []),
    ("no connection", "nobody listens", f"closed/{ONE}", INFO, []),
    ("reset", "resets the connection in the middle, once", f"reset/{ONE}", INFO, []),
    ("reset", "resets it each time", f"resets/{ONE}", INFO, ["--net-timeout", "10"]),
    ("closed without an answer", "to the first HEAD and the first GET", f"hangup/{ONE}", INFO, []),
    ("403", "forbids it", f"forbidden/{ONE}", INFO, []),
    ("404", "has no such object", "good/tar/set-train-000009.tar", INFO, []),
    ("416", "breaks off once, then says that there is no rest", f"shorter/{ONE}", INFO, []),
    ("429", "to the first HEAD and the first GET, with `Retry-After: 1`", f"limited/{ONE}", INFO, []),
    ("503", "to the first two of each", f"busy/{ONE}", INFO, []),
    ("503", "with `Retry-After: 100`, longer than `--net-timeout 60`", f"later/{ONE}", INFO, ["--net-timeout", "60"]),
    ("truncated body", "breaks off once; the object has an ETag, and comes on by range", f"tagged/{ONE}", INFO, []),
    ("truncated body", "each time, without an ETag", f"cut/{ONE}", INFO, ["--net-timeout", "10"]),
    ("corrupted body", "sends zeros once; the set has a `towers.index`", f"wrong/{TARS}", TRAIN, ["--shuffle-window", "1", "--max-steps", "12"]),
    ("corrupted body", "each time", f"wrongs/{TARS}", TRAIN, ["--shuffle-window", "1", "--max-steps", "12"]),
    ("object changed", "has another version than it said", f"versions/{ONE}", INFO, []),
    ("DNS", "no name server has ever answered", f"never/{MDS}", INFO, ["--net-timeout", "120"]),
    ("DNS", "is gone behind the first answers, and comes back", f"back/{MDS}", INFO, ["--net-timeout", "120"]),
    ("DNS", "is gone, and stays away", f"gone/{MDS}", INFO, ["--net-timeout", "10"]),
    ("full disk", "the set is larger than the disk of the cache", f"good/{TARS}", INFO, ["--cache-dir", "small"]),
    ("full disk", "there is room for three shards and a half, and two windows have four", f"good/{TARS}", TRAIN,
     ["--cache-dir", "disk", "--cache-limit", "1M", "--shuffle-window", "2", "--max-steps", "25"]),
]
ROOTED = ("DNS", "full disk")
# What a server does that is in time, but on a machine that has no time for it. Such a row is not what its fault does, so it is seen anew.
LATE, SLOW_ROWS, LOOKS = "came in time", ("time-out", "slow server"), 5


class NameServer(threading.Thread):
    """On 127.0.0.1:53, for store.test. It does not answer while gone() says so."""

    def __init__(self, gone):
        super().__init__(daemon=True)
        self.gone = gone
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))

    def run(self):
        while True:
            asked, peer = self.socket.recvfrom(512)
            if self.gone():
                continue
            end = asked.index(0, 12) + 5
            here = asked[end - 4 : end - 2] == b"\0\1"  # an address of IPv4
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if here else b""
            self.socket.sendto(asked[:2] + b"\x81\x80\0\1\0" + bytes([here]) + b"\0\0\0\0" + asked[12:end] + answer, peer)


def namespaces_enter():
    """Begin anew with a network, a name server and mounts of its own."""
    if os.environ.get("NETWORK_FAULTS_INSIDE") or os.getuid() != 0 or subprocess.run(["unshare", "-nm", "true"], capture_output=True).returncode:
        return
    os.environ["NETWORK_FAULTS_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-nm", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])


class Faults:
    def __init__(self, binary, work):
        self.binary, self.work, self.back, self.mode, self.looks = os.path.abspath(binary), work, False, "", 0
        os.chdir(work)
        self.inside = "NETWORK_FAULTS_INSIDE" in os.environ
        if self.inside:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for name, text in (("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"), ("nsswitch.conf", "hosts: files dns\n")):
                with open(name, "w") as file:
                    file.write(text)
                subprocess.run(["mount", "--bind", name, os.path.realpath("/etc/" + name)], check=True)
            NameServer(self.is_gone).start()
        subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests/support/shards_write.py"), "sets", "tar", "mds"], env={**os.environ, "IMAGES": "300"}, check=True, stdout=subprocess.DEVNULL)
        self.call("data", "index", "sets/tar")
        self.begin()

    def begin(self):
        self.server = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests/support/http_server.py"), "sets", "requests"], stdout=subprocess.PIPE, text=True)
        self.port = self.server.stdout.readline().split()[0]

    def is_gone(self):
        with open("requests") as file:
            asked = file.read()
        away = self.mode == "gone" or (self.mode == "back" and not self.back)
        return self.mode == "never" or (away and "\n/good/mds/" in "\n" + asked)

    def call(self, *arguments):
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"network_faults: {arguments}: {done.stderr}")

    def disk_make(self, name):
        self.disks_end()
        os.makedirs(name, exist_ok=True)
        if name == "small":
            return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", name], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", name], check=True)
        self.call("data", "index", f"http://127.0.0.1:{self.port}/good/{TARS}", "--cache-dir", name)
        for above, _, files in os.walk(name):
            for file in files:
                if file.endswith(".tar") and "/data/" in above:
                    os.remove(os.path.join(above, file))
        room = max(os.path.getsize(os.path.join("sets/tar", file)) for file in os.listdir("sets/tar") if file.endswith(".tar")) + 16384
        state = os.statvfs(name)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={used + 7 * room // 2 + (1 << 20)}", name], check=True)

    def see(self, row):
        """What is printed, and the exit code."""
        for _ in range(LOOKS):
            lines, code = self.see_once(row)
            if row[0] in SLOW_ROWS or not any(LATE in line for line in lines):
                break
            print(f"the machine was too busy for a row: {row[0]}: {row[1]}", flush=True)
            self.end()  # what it does once comes again
            self.begin()
        return lines, code

    def see_once(self, row):
        what, _, there, command, bounds = row
        self.mode, self.back, self.looks = there.split("/", 1)[0], False, self.looks + 1
        address = f"http://127.0.0.1:{self.port}/{there}"
        if self.mode == "closed":
            with socket.socket() as free:  # a port at which nobody listens
                free.bind(("127.0.0.1", 0))
                address = f"http://127.0.0.1:{free.getsockname()[1]}/good/{ONE}"
        if what == "DNS":
            address = f"http://store.test:{self.port}/good/{MDS}"
        if "--cache-dir" in bounds:
            self.disk_make(bounds[bounds.index("--cache-dir") + 1])
        else:
            bounds = ["--cache-dir", "cache", *bounds]
        open("requests", "w").close()
        name = ["--experiment", f"run-{self.looks}"] if command == TRAIN else []
        address = ["--data-path", address] if command == TRAIN else [address]
        process = subprocess.Popen([self.binary, *command, *address, *bounds, *name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            tries = sum(earlier.startswith(line.split(": ")[0]) and "trying again in" in earlier for earlier in lines)
            self.back = self.back or tries >= 3  # a host that has never answered is given up before
        shutil.rmtree("cache", ignore_errors=True)
        return lines, process.wait()

    def end(self):
        self.server.terminate()
        self.server.wait()

    def disks_end(self):
        for name in ("small", "disk"):
            subprocess.run(["umount", os.path.join(self.work, name)], stderr=subprocess.DEVNULL)


def plain(text):
    """Without what differs from one time, and from one libcurl, to the next."""
    for pattern, same in ((r" \((?!DNS\))[^()]*\)", ""), (r"http://(127\.0\.0\.1|store\.test):[0-9]+", "http://HOST"), (r"HOST/[^ ]*[^ :]", "HOST/OBJECT"), (r"[0-9]+ of [0-9]+ bytes", "N of N bytes"), (r"\bin [0-9.]+ s\b", "in N s"),
                          (r"[0-9]+ tries", "N tries"),
                          (r"the disk of '[^']*'", "the disk of 'CACHE'"), (r"(into|in) '[^']*'", r"\1 'CACHE'"), (r"[0-9.]+ MB", "N MB"),
                          (r"[0-9]+ of [0-9]+ objects", "N of N objects")):
        text = re.sub(pattern, same, text)
    return text.replace("|", "\\|")


def row_text(row, lines, code):
    again = [line for line in lines if "trying again in" in line]
    of = {}
    for line in again:
        of[line.split(": ")[0]] = of.get(line.split(": ")[0], 0) + 1
    most = max(of.values(), default=0)
    # How often something is tried until a bound of time is a matter of chance.
    retries = "none" if not most else "until the bound" if code else "until it is back" if row[0] == "DNS" else str(most)
    if "never" in row[2] or "closed" in row[2]:
        retries = str(most)
    errors = [line for line in lines if line.startswith(("towers: ", "error: "))]
    told = [line for line in lines if "fewer shards are read ahead" in line]
    message = errors[-1] if code else (again or told or ["(nothing)"])[0]
    end = {0: "succeeds"}.get(code, "ends by name")
    command = "training" if row[3] == TRAIN else "`data info`"
    return f"| {row[0]}: {row[1]} | {command} | {retries} | {end} | {code} | {plain(message)} |"


def main():
    namespaces_enter()
    check = "--check" in sys.argv
    for name in [name for name in os.environ if name.startswith("TOWERS_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update(LC_ALL="C", TOWERS_RECIPE="none")
    with open(PAGE) as file:
        before = [line for line in file.read().split("\n") if line.startswith("| ")]
    table = ["| what fails: the server, or the network | in | retries of an object | what follows | exit code | message: of the end, or the first that is shown |", "|---|---|---|---|---:|---|"]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="towers-faults.") as work:
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = work
        faults = Faults(sys.argv[1], work)
        try:
            for row in ROWS:
                begin = time.monotonic()
                if row[0] in ROOTED and not faults.inside:
                    print(f"SKIPPED: {row[0]}: {row[1]}: wants root", file=sys.stderr)
                    table += [line for line in before if line.startswith(f"| {row[0]}: {row[1]} |")]
                    continue
                lines, code = faults.see(row)
                table.append(row_text(row, lines, code))
                print(f"{time.monotonic() - begin:5.1f} s  {table[-1]}", flush=True)
                if check and table[-1] not in before:
                    wrong += 1
                    print(f"network_faults: {os.path.basename(PAGE)} has no such row. Printed was:\n" + "\n".join(lines[-8:]), file=sys.stderr)
        finally:
            faults.end()
            os.chdir("/")
            faults.disks_end()
    if check and len(before) != len(ROWS) + 1:
        sys.exit(f"network_faults: {os.path.basename(PAGE)} has {len(before) - 1} rows instead of {len(ROWS)}")
    if check:
        sys.exit(wrong > 0)
    subprocess.run([os.path.join(ROOT, "scripts/pages/fill_section.sh"), PAGE, "network-faults"], input="\n".join(table) + "\n", text=True, check=True)


if __name__ == "__main__":
    main()
