#!/usr/bin/env python3
"""Shards of an object store behind a link of a given rate and round trip: Towers beside Mosaic Streaming; see scripts/measure/bench_remote.sh.

usage: bench_remote.py [--only CELL,...] [--missing] [--list]      a CELL is MBITxMS, such as 100x20
       bench_remote.py --write FOLDER COUNT SHARD_BYTES            a set of photographs, by MDSWriter; with PyTorch's Python
       bench_remote.py --mosaic JSON                               one epoch; likewise

Three epochs are measured of each program in each cell: with an empty cache as fast as it can, then with the cache that this has filled (its
local rate), and with an empty cache at a pace: a step takes at least so long that the link carries 1.2 times the bytes that it needs, unless
the program's local rate is lower than that, which then sets the pace. Behind a batch, Towers waits in a fault point and Mosaic's loop sleeps.
Both begin with empty caches, read windows of WINDOW shards in random order, crop and mirror at random to 224 x 224, batch 16, two
threads or worker processes. What Towers' program and PyTorch need to begin is in the first, not in the second (its import takes seconds).
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PAGE, RESULTS = "docs/results/remote.md", "docs/results/remote.json"
BATCH, WINDOW, WORKERS, SIDE = 16, 4, 2, 224
SETS = {10: (256, 1 << 19), 100: (1024, 4 << 20), 1000: (4096, 16 << 20)}  # images of about 90 KB, and the most bytes of a shard, for each Mbit/s
CELLS = [(rate, trip) for rate in SETS for trip in (0, 20, 100)]
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-remote", "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
SERVER, CLIENT, PORT = "10.77.47.1", "10.77.47.2", 9000
SLACK, LIMIT_SECONDS = 1.2, 300


# ---- what runs with PyTorch's Python


def photographs(count):
    """As large as those of ImageNet are in the mean, and as costly to decode: smooth colors, with noise."""
    import io

    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(1)
    for _ in range(count):
        smooth = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
        noisy = np.clip(np.asarray(smooth, dtype=np.int16) + draw.normal(0, 13, (375, 500, 1)).astype(np.int16), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=90)
        yield file.getvalue()


def write(folder, count, shard_bytes):
    from streaming import MDSWriter

    some = list(photographs(min(count, 256)))
    for part, images in (("train", count), ("val", 10)):
        with MDSWriter(out=os.path.join(folder, part), columns={"image": "bytes", "label": "int"}, size_limit=shard_bytes) as writer:
            for i in range(images):
                writer.write({"image": some[i % len(some)], "label": i % 10})


def mosaic(told):
    import io

    import torch
    from PIL import Image
    from streaming import StreamingDataset
    from torchvision import transforms

    turn = transforms.Compose([transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                               transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    class Photographs(StreamingDataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return turn(Image.open(io.BytesIO(sample["image"])).convert("RGB")), sample["label"]

    torch.set_num_threads(1)
    begin = time.perf_counter()
    data = Photographs(remote=told["remote"], local=told["local"], shuffle=True, batch_size=BATCH, shuffle_block_size=told["block"])
    for stream in data.streams:  # else its worker processes use one connection of this one at the same time, and get each other's bytes
        stream._downloader.clean_up()
    batches = iter(torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=WORKERS))
    steps, first = [], None
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        now = time.perf_counter()
        if batch is None:
            break
        if first is None:
            first = now - begin
        time.sleep(told["pace"])
        steps.append((now - asked, time.perf_counter() - asked, len(batch[1])))
    print(json.dumps({"first": first, "all": time.perf_counter() - begin, "steps": steps}))


# ---- the link and the store


def set_folder(work, rate):
    return os.path.join(work, "bucket", "bench", str(rate))


def inside(name, *command):
    return ["ip", "netns", "exec", name, *command]


def wait_for(what, ready):
    for _ in range(600):
        if ready():
            return
        time.sleep(0.05)
    sys.exit(f"bench_remote: {what} does not start")


class Place:
    """Two network namespaces with a link between them, and nginx in the first, whose folder is a bucket named bench."""

    def __init__(self, work, rate, trip):
        self.work, self.names = work, (f"brs{os.getpid()}", f"brc{os.getpid()}")
        self.link = self.nginx = None
        try:
            self.begin(rate, trip)
        except BaseException:
            self.end()
            raise

    def begin(self, rate, trip):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
            # A connection may have as much on the way as the fastest and longest of these links holds.
            subprocess.run(inside(name, "sysctl", "-qw", "net.ipv4.tcp_wmem=4096 16384 33554432", "net.ipv4.tcp_rmem=4096 131072 33554432"), check=True)
        self.link = subprocess.Popen([os.environ["LINK"], self.names[0], SERVER, self.names[1], CLIENT, str(rate), str(trip)], stdout=subprocess.PIPE, text=True)
        if self.link.stdout.readline() != "ready\n":
            sys.exit("bench_remote: there is no link")
        with open(os.path.join(self.work, "nginx.conf"), "w") as file:
            file.write("user root;\ndaemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log error.log;\nevents { worker_connections 1024; }\nhttp {\n"
                       "access_log requests; sendfile on; keepalive_requests 100000; keepalive_timeout 600s;\n"
                       + "".join(f"{kind}_temp_path temp/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
                       + f"server {{ listen {SERVER}:{PORT}; root {self.work}/bucket; }}\n}}\n")
        os.makedirs(os.path.join(self.work, "temp"), exist_ok=True)
        self.nginx = subprocess.Popen(inside(self.names[0], os.environ["NGINX_PROGRAM"], "-p", self.work, "-c", "nginx.conf"))
        probe = inside(self.names[1], "bash", "-c", f"exec 3<>/dev/tcp/{SERVER}/{PORT}")
        wait_for("nginx", lambda: subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0)

    def moved(self):
        found = subprocess.run(inside(self.names[1], "cat", "/sys/class/net/link0/statistics/rx_bytes"), capture_output=True, text=True)
        if found.returncode:  # where /sys is that of another namespace
            found = subprocess.run(["ip", "-n", self.names[1], "-s", "-j", "link", "show", "link0"], capture_output=True, text=True, check=True)
            return json.loads(found.stdout)[0]["stats64"]["rx"]["bytes"]
        return int(found.stdout)

    def requests(self):
        with open(os.path.join(self.work, "requests")) as file:
            return sum(1 for _ in file)

    def end(self):
        for process in (self.nginx, self.link):
            if process:
                process.send_signal(signal.SIGTERM)
                process.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


# ---- one epoch


def run(command, environment, what, seen=None):
    """Seconds until `seen` exists, and the output."""
    begin, first = time.perf_counter(), None
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, env={**os.environ, **KEYS, **environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        while process.poll() is None:
            if seen and first is None and os.path.exists(seen):
                first = time.perf_counter() - begin
            if time.perf_counter() - begin > LIMIT_SECONDS:
                process.kill()
            time.sleep(0.005)
        out.seek(0), err.seek(0)
        if process.returncode:
            sys.exit(f"bench_remote: {what} ends with {process.returncode}: {err.read()[-2000:]}")
        return first, out.read()


def towers_epoch(place, cell, cache, pace):
    name = f"run-{time.monotonic_ns()}"
    count = SETS[cell[0]][0]
    command = inside(place.names[1], os.environ["TOWERS"], "train", os.path.join(place.work, "small.onnx"), "--data-path", f"s3://bench/{cell[0]}/{{train,val}}/", "--cache-dir", cache,
                     "--s3-endpoint", f"http://{SERVER}:{PORT}", "--device", "cpu", "--towers", "1", "--threads", "1", "--workers", str(WORKERS), "-b", str(BATCH),
                     "--img-size", str(SIDE), "--augment", "--shuffle-window", str(WINDOW), "--max-steps", str(count // BATCH), "--eval-interval", "0",
                     "--log-interval", "1", "--summary-interval", "0", "--checkpoint-steps", "0", "--output-dir", place.work, "--experiment", name)
    folder = os.path.join(place.work, name)
    fault = {"TOWERS_FAULT": f"delay:tower=0,step=1,ms={round(pace * 1000)}"} if pace else {}
    first, _ = run(command, fault, "towers", os.path.join(folder, "first-batch.csv"))
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    shutil.rmtree(folder)
    steps = [(row["data_us"][0] * 1e-6, row["images"] / row["images_per_sec"], row["images"]) for row in rows]
    return {"first": first, "all": first + steps[0][1] - steps[0][0] + sum(row["wall_seconds"] for row in rows[1:]), "steps": steps}


def mosaic_epoch(place, cell, cache, pace):
    with open(os.path.join(set_folder(place.work, cell[0]), "train", "index.json")) as file:
        samples = json.load(file)["shards"][0]["samples"]
    told = {"remote": f"s3://bench/{cell[0]}/train", "local": cache, "pace": pace, "block": WINDOW * samples}
    environment = {"PYTHONPATH": os.environ["STREAMING_PACKAGES"], "S3_ENDPOINT_URL": f"http://{SERVER}:{PORT}"}
    _, out = run(inside(place.names[1], os.environ["TORCH_PYTHON"], __file__, "--mosaic", json.dumps(told)), environment, "streaming")
    return json.loads(out.splitlines()[-1])


def same_bytes(place, cell, caches):
    """What both programs have in their caches is the set."""
    folder = os.path.join(set_folder(place.work, cell[0]), "train")
    for cache in caches:
        found = {}
        for above, _, files in os.walk(cache):
            if not above.endswith("/val") and "/view/" not in above:  # a view has stand-ins
                found.update({file: os.path.join(above, file) for file in files if file.endswith(".mds")})
        for shard in (file for file in os.listdir(folder) if file.endswith(".mds")):
            if shard not in found or subprocess.run(["cmp", "-s", found[shard], os.path.join(folder, shard)]).returncode:
                sys.exit(f"bench_remote: {shard} in {cache} is not that of the store")


def rate_of(epoch):
    """Images per second behind the first batch, without the time until it came."""
    return sum(step[2] for step in epoch["steps"][1:]) / (epoch["all"] - epoch["first"])


def side_measure(place, cell, epoch, cache):
    folder = os.path.join(set_folder(place.work, cell[0]), "train")
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    shards = sum(file.endswith(".mds") for file in os.listdir(folder))
    moved, requests = place.moved(), place.requests()
    cold = epoch(place, cell, cache, 0)
    moved, requests = place.moved() - moved, place.requests() - requests
    local = epoch(place, cell, cache, 0)
    bandwidth = cell[0] * 1e6 / 8 / (size / SETS[cell[0]][0])  # images per second that the link carries
    pace = BATCH / min(bandwidth / SLACK, 0.8 * rate_of(local))
    paced = epoch(place, cell, cache + "-paced", pace)
    waits = [step[0] for step in paced["steps"][1:]]
    shutil.rmtree(cache + "-paced")
    return {"first": cold["first"], "epoch": cold["all"], "rate": SETS[cell[0]][0] / cold["all"], "local": rate_of(local), "paced_first": paced["first"],
            "needs": 8e-6 * size / SETS[cell[0]][0] * BATCH / pace, "pace": pace, "waits": sum(waits) / sum(step[1] for step in paced["steps"][1:]),
            "window": 8e-6 * size * WINDOW / shards / cell[0], "longest": max(waits), "moved": moved, "requests": requests, "set": size}


# ---- the table


def cell_name(cell):
    return f"{cell[0]}x{cell[1]}"


def table(results):
    rows = ["| link, Mbit/s, ms | set, MB | | first batch, s | its window, s | epoch, s | images/s | local rate | Mbit/s needed at the pace | times that | waits of a step | longest, ms | MB, requests | measured |",
            "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for cell in CELLS:
        case = results["cells"].get(cell_name(cell))
        for name, side in (case["sides"].items() if case else ()):
            rows.append(f"| {cell[0]}, {cell[1]} | {side['set'] / 1e6:.0f} | {name} | {side['first']:.1f} | {side['window']:.1f} | {side['epoch']:.1f} | {side['rate']:.0f} | {side['local']:.0f} | "
                        f"{side['needs']:.0f} | {cell[0] / side['needs']:.1f} | {side['waits']:.1%} | {side['longest'] * 1e3:.0f} | {side['moved'] / 1e6:.1f}, {side['requests']} | {case['commit']}, {case['date']} |")
    return [f"{results['machine']}.", "", *rows]


def save(results):
    with open(RESULTS + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(RESULTS + ".new", RESULTS)
    subprocess.run(["scripts/pages/fill_section.sh", PAGE, "remote"], input="\n".join(table(results)) + "\n", text=True, check=True)


def network_make(path):
    """One convolution: a step of it costs next to nothing."""
    code = """import sys, numpy, onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n
g = numpy.random.default_rng(0)
w = [n.from_array(g.normal(0, .1, s).astype("f4"), k) for k, s in (("conv.weight", (8, 3, 16, 16)), ("conv.bias", (8,)), ("fc.weight", (10, 8)), ("fc.bias", (10,)))]
nodes = [h.make_node("Conv", ["image", "conv.weight", "conv.bias"], ["c"], kernel_shape=[16, 16], strides=[16, 16]), h.make_node("Relu", ["c"], ["r"]),
         h.make_node("GlobalAveragePool", ["r"], ["p"]), h.make_node("Flatten", ["p"], ["f"]), h.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], transB=1)]
x, y = h.make_tensor_value_info("image", T.FLOAT, ["n", 3, 224, 224]), h.make_tensor_value_info("logits", T.FLOAT, ["n", 10])
onnx.save(h.make_model(h.make_graph(nodes, "small", [x], [y], w), opset_imports=[h.make_opsetid("", 17)], ir_version=8), sys.argv[1])"""
    subprocess.run([os.environ["ONNX_PYTHON"], "-c", code, path], check=True)


def set_make(work, rate):
    folder = set_folder(work, rate)
    if os.path.exists(folder):
        return
    count, shard_bytes = SETS[rate]
    subprocess.run([os.environ["TORCH_PYTHON"], __file__, "--write", folder + ".new", str(count), str(shard_bytes)],
                   env={**os.environ, "PYTHONPATH": os.environ["STREAMING_PACKAGES"]}, check=True)
    subprocess.run([os.environ["TOWERS"], "data", "index", folder + ".new"], check=True, stdout=subprocess.DEVNULL)
    os.rename(folder + ".new", folder)


def measure(work, cells, results):
    network_make(os.path.join(work, "small.onnx"))
    for cell in cells:
        set_make(work, cell[0])
        place = Place(work, *cell)
        try:
            sides, order = {}, [("Towers", towers_epoch), ("Mosaic Streaming", mosaic_epoch)]
            random.shuffle(order)
            caches = [os.path.join(work, name.split()[0].lower()) for name, _ in order]
            for (name, epoch), cache in zip(order, caches):
                sides[name] = side_measure(place, cell, epoch, cache)
            same_bytes(place, cell, caches)
            for cache in caches:
                shutil.rmtree(cache)
        finally:
            place.end()
        sides = {name: sides[name] for name in ("Towers", "Mosaic Streaming")}
        results["cells"][cell_name(cell)] = {"commit": os.environ["COMMIT"].split(",")[0].removeprefix("commit "), "date": time.strftime("%Y-%m-%d"), "sides": sides}
        print(f"{time.strftime('%H:%M:%S')} {cell_name(cell)}: " + "; ".join(
            f"{name}: first {s['first']:.1f} s, epoch {s['epoch']:.1f} s, waits {s['waits']:.1%}" for name, s in sides.items()), flush=True)
        if os.environ.get("WRITE") != "no":
            save(results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cells, separated by commas, as 100x20")
    parser.add_argument("--missing", action="store_true", help="only what has no row yet")
    parser.add_argument("--list", action="store_true", help="show the cells")
    parser.add_argument("--write", nargs=3)
    parser.add_argument("--mosaic")
    options = parser.parse_args()
    if options.write:
        return write(options.write[0], int(options.write[1]), int(options.write[2]))
    if options.mosaic:
        return mosaic(json.loads(options.mosaic))
    names = [cell_name(cell) for cell in CELLS]
    if options.list:
        return print("\n".join(names))
    only = options.only.split(",") if options.only else names
    for name in only:
        if name not in names:
            sys.exit(f"bench_remote: unknown '{name}'; use one of {', '.join(names)}")
    results = {"cells": {}}
    if os.path.exists(RESULTS):
        with open(RESULTS) as file:
            results = json.load(file)
    results["machine"] = os.environ["MACHINE"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench_remote: ended by a signal; what is done is written, and --missing goes on"))
    cells = [cell for cell in CELLS if cell_name(cell) in only and not (options.missing and cell_name(cell) in results["cells"])]
    measure(os.environ["WORK"], cells, results)


if __name__ == "__main__":
    main()
