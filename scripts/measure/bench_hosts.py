#!/usr/bin/env python3
"""What scripts/measure/bench_hosts.sh measures, and the model of a step on several CPU hosts.

The chain of a bucket of B bytes over H hosts takes  t(B, H) = k B / bandwidth + 2 (H - 1) (C / bandwidth + latency),  where C is the
chunk of nccl_sync/hosts_chain.c and k the number of times that a host sends the bucket: once between two hosts, twice in the middle
of a longer chain. Chains follow each other. Their sum S hides behind the rest of the backward pass, W, but for the last bucket:
exposed = max(t(last bucket), S - W). A step takes  compute + processor + exposed:  compute is the step of one host with the same towers,
processor the work of sending and receiving, taken from the first point of two hosts and proportional to k.

usage: bench_hosts.py rate NAMESPACE NAMESPACE ADDRESS NOMINAL      bytes per second of one connection
       bench_hosts.py tables TOWERS MODEL POINT...                  HOSTS:TOWERS:RATE:BATCH:METRICS or rate:NOMINAL:BYTES_PER_SECOND
       bench_hosts.py formula                                       the chain and a tree on many hosts
"""
import json
import math
import statistics
import subprocess
import sys
import time

CHUNK = 4 * (1 << 16)  # bytes, as in nccl_sync/hosts_chain.c
FIRST_BUCKET, BUCKET = 4 << 20, 25 << 20  # as in towers/train/process_open.c
LATENCY = 100e-6  # of a message, assumed: TCP on both sides, and the pauses between polls
WARM = 2  # steps

RATES = {"10gbit": 10e9 / 8, "1gbit": 1e9 / 8, "100mbit": 100e6 / 8}

SERVER = """import socket,sys
s=socket.create_server((sys.argv[1],7777)); print('ready',flush=True); c,_=s.accept()
while c.recv(1<<20): pass
c.sendall(b'x')"""
CLIENT = """import socket,sys,time
c=socket.create_connection((sys.argv[1],7777)); n=int(sys.argv[2]); b=bytes(1<<20); t=time.perf_counter()
for _ in range(n): c.sendall(b)
c.shutdown(socket.SHUT_WR); c.recv(1); print((n<<20)/(time.perf_counter()-t))"""


def measured_rate(sender, receiver, address, nominal):
    mebibytes = str(max(16, int(RATES[nominal] / (1 << 20))))  # about a second
    inside = ["ip", "netns", "exec"]
    server = subprocess.Popen(inside + [receiver, sys.executable, "-c", SERVER, address], stdout=subprocess.PIPE)
    server.stdout.readline()
    sent = subprocess.run(inside + [sender, sys.executable, "-c", CLIENT, address, mebibytes], stdout=subprocess.PIPE, check=True)
    server.wait()
    return float(sent.stdout)


def steps_of(path):
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if "images_per_sec" in row][WARM:]


class Point:
    """Medians over the steps of all rounds; seconds."""

    def __init__(self, hosts, towers, rate, batch):
        self.hosts, self.towers, self.rate, self.batch, self.rounds = hosts, towers, rate, batch, []

    def close(self):
        steps = [step for one in self.rounds for step in one]
        median = lambda value: statistics.median(value(step) for step in steps)
        self.step = median(lambda s: s["images"] / s["images_per_sec"])
        each = [statistics.median(s["images"] / s["images_per_sec"] for s in one) for one in self.rounds]
        self.spread = (max(each) - min(each)) / self.step
        if self.hosts > 1:
            self.window = median(lambda s: s["backward_end_us"] - s["sum_begin_us"]) * 1e-6
            self.exposed = median(lambda s: s["sum_end_us"] - s["backward_end_us"]) * 1e-6
            self.busy = median(lambda s: s["sum_busy_us"]) * 1e-6


def chain(size, hosts, bandwidth, latency=LATENCY):
    times = 1 if hosts == 2 else 2
    return times * size / bandwidth + 2 * (hosts - 1) * (CHUNK / bandwidth + latency)


def tree(size, hosts, bandwidth, latency=LATENCY):
    """Up a binary tree and down again, in chunks: an inner host sends each chunk once up and to two below."""
    return 3 * size / bandwidth + 2 * math.ceil(math.log2(hosts)) * (CHUNK / bandwidth + latency)


def buckets_of(parameters):
    """About as bucket.c cuts them: the first and the last are small."""
    left, sizes = 4 * parameters - 2 * FIRST_BUCKET, [FIRST_BUCKET]
    while left > 0:
        sizes.append(min(left, BUCKET))
        left -= BUCKET
    return sizes + [FIRST_BUCKET]


def exposed(buckets, hosts, bandwidth, window):
    times = [chain(size, hosts, bandwidth) for size in buckets]
    return max(times[-1], sum(times) - window)


def tables(towers, model, arguments):
    points, rates = {}, {}
    for argument in arguments:
        fields = argument.split(":")
        if fields[0] == "rate":
            rates[fields[1]] = float(fields[2])
            continue
        key = (int(fields[0]), int(fields[1]), fields[2], int(fields[3]))
        points.setdefault(key, Point(*key)).rounds.append(steps_of(fields[4]))
    for point in points.values():
        point.close()
    listed = subprocess.run([towers, "models"], stdout=subprocess.PIPE, text=True, check=True).stdout
    parameters = next(int(line.split()[3]) for line in listed.splitlines() if line.split()[:1] == [model])
    buckets = buckets_of(parameters)
    alone, first = list(points.values())[:2]
    processor = first.step - alone.step - exposed(buckets, 2, rates["10gbit"], first.window)

    print("| hosts | towers | batch per tower | link: nominal, measured | step, s | of one host's speed | sums, s | beside the backward pass | behind it, s | model: step, s | model - measured |")
    print("|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for point in points.values():
        one = points[(1, point.towers, "-", point.batch)]
        if point.hosts == 1:
            print(f"| 1 | {point.towers} | {point.batch} | - | {point.step:.2f} | 1.00 | | | | | |")
            continue
        late = exposed(buckets, point.hosts, rates[point.rate], first.window * one.step / alone.step)
        predicted = one.step + processor * (1 if point.hosts == 2 else 2) + late
        hidden = 1 - max(point.exposed, 0) / point.busy
        print(f"| {point.hosts} | {point.towers} | {point.batch} | {point.rate}, {rates[point.rate] / 1e6:.0f} MB/s | {point.step:.2f} | {one.step / point.step:.2f} | "
              f"{point.busy:.2f} | {hidden:.0%} | {point.exposed:.2f} | {predicted:.2f} | {(predicted - point.step) / point.step:+.0%} |")
    pair = ", ".join(f"{point.spread:.1%}" for point in (alone, first))
    print(f"\nMedians of steps; between rounds the first two lines differ by up to {pair}. The model takes from the measurements the steps of one "
          f"host, the time from the first bucket to the end of the backward pass ({first.window:.2f} s of the second line), and the processor's "
          f"part, {max(processor, 0):.2f} s for each time that a host sends the gradients; the rest is the formula.")


def formula():
    print(f"A bucket of {BUCKET >> 20} MB by the formula, in milliseconds, with {LATENCY * 1e6:.0f} microseconds for a message, as a chain and as a binary tree:\n")
    print("| hosts | 10 Gbit/s: chain | of it latency | tree | 100 Gbit/s: chain | of it latency | tree |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for hosts in (2, 4, 16, 64, 128, 256, 512):
        row = [f"| {hosts} |"]
        for bandwidth in (10e9 / 8, 100e9 / 8):
            whole = chain(BUCKET, hosts, bandwidth)
            wait = 2 * (hosts - 1) * (CHUNK / bandwidth + LATENCY)
            row.append(f" {whole * 1e3:.0f} | {wait / whole:.0%} | {tree(BUCKET, hosts, bandwidth) * 1e3:.0f} |")
        print("".join(row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rate"]:
        print(measured_rate(*sys.argv[2:6]))
    elif sys.argv[1:2] == ["tables"]:
        tables(sys.argv[2], sys.argv[3], sys.argv[4:])
    elif sys.argv[1:2] == ["formula"]:
        formula()
    else:
        sys.exit(__doc__)
