#!/usr/bin/env python3
"""The measurements of scripts/measure/bench_shards.sh: bench_shards.py list|cold|large TOWERS WORK IMAGES [PHOTOS]; prints a table."""
import glob, json, os, re, struct, subprocess, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/support"))
from shards_write import field, masked, mds_shard, record, varint

SHARD, BLOCK = 1000, 4096
BYTES = 25 * BLOCK - 1536  # of an image with holes: a sample of a tar, with three blocks of 512 before, is whole pages


# ---- writing; `data` is the beginning of an image of `size` bytes, the rest is a hole

def header(name, size, known={}):
    """A ustar header, as tarfile writes it."""
    if size not in known:
        import tarfile
        member = tarfile.TarInfo("")
        member.size = size
        plain = member.tobuf(tarfile.USTAR_FORMAT)
        known[size] = plain, sum(plain[:148]) + sum(plain[156:]) + 8 * 32
    plain, total = known[size]
    return name.ljust(100, b"\0") + plain[100:148] + b"%06o\0 " % (total + sum(name)) + plain[156:]


def tar_write(to, rows):
    for i, label, data, size in rows:
        key = b"n%08d_%d" % (label, i)
        to.write(header(key + b".cls", 3) + (b"%03d" % label).ljust(512, b"\0") + header(key + b".jpg", size) + data)
        to.seek(-(-size // 512) * 512 - len(data), os.SEEK_CUR)
    to.write(bytes(10240))


def tfrecord_write(to, rows, known={}):
    for i, label, data, size in rows:
        if len(data) == size:  # the same photographs again and again: their CRCs in Python take long
            if (data, label) not in known:
                from shards_write import example
                known[data, label] = record(example({"image/class/label": 1 + label, "image/encoded": data}))
            to.write(known[data, label])
            continue
        entry = lambda key, value: field(1, field(1, key) + field(2, value))
        text = entry(b"image/class/label", field(3, field(1, varint(1 + label)))) + entry(b"image/filename", field(1, field(1, b"n%d_%d.JPEG" % (label, i))))
        open_field = lambda number, inner: varint(number << 3 | 2) + varint(len(inner) + size) + inner
        pair = open_field(1, field(1, b"image/encoded") + open_field(2, open_field(1, open_field(1, b""))))
        start = varint(1 << 3 | 2) + varint(len(text) + len(pair) + size) + text + pair
        length = struct.pack("<Q", len(start) + size)
        to.write(length + masked(length) + start)
        to.seek(size, os.SEEK_CUR)
        to.write(b"\0\0\0\0")


def mds_write(to, rows):
    rows = list(rows)
    config = mds_shard({"image": ("jpeg", None), "label": ("int", 8)}, [])[0][8:]
    at = [4 + 4 * (len(rows) + 1) + len(config)]
    for _, _, _, size in rows:
        at.append(at[-1] + 4 + size + 8)
    to.write(struct.pack("<%dI" % (len(at) + 1), len(rows), *at) + config)
    for _, label, data, size in rows:
        to.write(struct.pack("<I", size) + data)
        to.seek(size - len(data), os.SEEK_CUR)
        to.write(struct.pack("<q", label))


KINDS = {"tar": (tar_write, "shard-%06d.tar"), "tfrecord": (tfrecord_write, "train-%05d-of-99999"), "mds": (mds_write, "shard.%05d.mds")}


def set_write(kind, root, images, row, shard=SHARD):
    """row(i): label, the beginning of the image, its size."""
    write, name = KINDS[kind]
    for split, count in (("train", images), ("val", 64)):
        folder = "%s/%s" % (root, split)
        os.makedirs(folder)
        entries = []
        for first in range(0, count, shard):
            path = "%s/%s" % (folder, name % (first // shard))
            some = min(shard, count - first)
            with open(path, "wb") as to:
                write(to, ((i,) + row(i) for i in range(first, first + some)))
            entries.append({"version": 2, "format": "mds", "samples": some, "raw_data": {"basename": os.path.basename(path), "bytes": os.path.getsize(path)}})
        if kind == "mds":
            json.dump({"version": 2, "shards": entries}, open(folder + "/index.json", "w"))


def folder_write(root, images, row):
    for split, count in (("train", images), ("val", 64)):
        for i in range(count):
            label, data, _ = row(i)
            folder = "%s/%s/n%08d" % (root, split, label)
            os.makedirs(folder, exist_ok=True)
            with open("%s/%d.jpg" % (folder, i), "wb") as to:
                to.write(data)


# ---- running

def run(*command, group=None, memory=False):
    """Seconds, the most memory that a process had resident in MiB (if asked for), and standard output."""
    def join():
        if group:
            with open(group + "/cgroup.procs", "w") as to:
                to.write(str(os.getpid()))
    begin, most = time.monotonic(), 0
    with open(os.devnull) as nothing, open(work + "/out", "w") as out, open(work + "/err", "w") as err:
        child = subprocess.Popen(command, stdin=nothing, stdout=out, stderr=err, preexec_fn=join)
        while memory and child.poll() is None:
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    if work.encode() in open(path, "rb").read():
                        peak = re.search(r"VmHWM:\s+(\d+)", open(path.replace("cmdline", "status")).read())
                        if peak and "python" not in open(path.replace("cmdline", "comm")).read():
                            most = max(most, int(peak.group(1)))
                except OSError:
                    pass
            time.sleep(0.1)
        child.wait()
    if child.returncode:
        sys.exit("%s: exit %d: %s" % (" ".join(command), child.returncode, open(work + "/err").read()[-1000:]))
    return time.monotonic() - begin, most / 1024, open(work + "/out").read()


def train(data, *more, memory=False):
    return run(towers, "train", "googlenet", "--no-aux", "--img-size", "32", "-b", "32", "--device", "cpu", "--towers", "1", "--threads", "1", "--workers", "1",
               "--data-memory", "32", "--eval-interval", "0", "--summary-interval", "0", "--output-dir", work + "/runs", *(["--data-path", data] if data else []), *more, memory=memory)


def list_measure(images):
    print("| format | images | listed, s | found again, s | a second, images |\n|---|---:|---:|---:|---:|")
    for kind in KINDS:
        set_write(kind, "%s/%s" % (work, kind), images, lambda i: (i % 1000, b"", BYTES))
        listed, again = (train("%s/%s" % (work, kind), "--dry-run")[0] for _ in range(2))
        print("| %s | %d | %.2f | %.2f | %d |" % (kind, images, listed, again, images / max(listed - again, 0.01)), flush=True)
        subprocess.run(["rm", "-rf", "%s/%s" % (work, kind)], check=True)


def large_measure(images):
    with open("tests/fuzz/corpus/image/baseline.jpg", "rb") as source:
        picture = source.read()
    set_write("tar", work + "/large", images, lambda i: (i % 1000, picture, BYTES))
    os.sync()
    listed, memory, _ = train(work + "/large", "--dry-run", memory=True)
    again, _, _ = train(work + "/large", "--dry-run")
    first, _, _ = train(work + "/large", "--max-steps", "1", "--experiment", "first")
    _, peak, _ = train(work + "/large", "--max-steps", "200", "--experiment", "large", memory=True)
    plain, _, _ = train(None, "--dataset", "synthetic", "--classes", "1000", "--max-steps", "1", "--experiment", "plain")
    _, alone, _ = train(None, "--dataset", "synthetic", "--classes", "1000", "--max-steps", "200", "--experiment", "alone", memory=True)
    index = max(os.path.getsize(path) for path in glob.glob(os.environ["XDG_CACHE_HOME"] + "/towers/index/*"))
    print("| images in tars of 1,000 | listed, s | peak memory of listing, MiB | index, MiB | found again, s | one step, start to end, s | the same on synthetic images, s |"
          " peak memory of a run, MiB | the same on synthetic images, MiB |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print("| %d | %.1f | %.0f | %.0f | %.2f | %.2f | %.2f | %.0f | %.0f |" % (images, listed, memory, index / 2**20, again, first, plain, peak, alone))
    if peak - alone > 32 + 64:
        sys.exit("bench_shards: more than --data-memory and 64 MiB")


# ---- cold

LIMIT_READS, LIMIT_BYTES = 200, 100 << 20


def slow_disk():
    """A control group whose reads from the disk of `work` are limited; None where that is not possible."""
    group = "/sys/fs/cgroup/blkio/towers-bench-%d" % os.getpid()
    try:
        device = os.stat(work).st_dev
        disk = "%d:%d" % (os.major(device), os.minor(device))
        if os.path.exists("/sys/dev/block/%s/partition" % disk):
            disk = open("/sys/dev/block/%s/../dev" % disk).read().strip()
        os.mkdir(group)
        for name, limit in (("read_iops", LIMIT_READS), ("read_bps", LIMIT_BYTES)):
            with open("%s/blkio.throttle.%s_device" % (group, name), "w") as to:
                to.write("%s %d" % (disk, limit))
        return group
    except OSError:
        if os.path.isdir(group):
            os.rmdir(group)
        return None


def drop(root):
    """True if directories and inodes are dropped from memory, too."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as to:
            to.write("3")
        return True
    except OSError:
        for folder, _, names in os.walk(root):
            for name in names:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        return False


def bench(root, window, group=None):
    command = [towers, "data", "bench", root, "--augment", "--threads", "1", "--img-size", "224"]
    out = run(*command, *(["--shuffle-window", str(window)] if window else []), group=group)[2]
    return float(re.search(r"all +([\d.]+) images/s", out).group(1)), float(re.search(r"storage +([\d.]+) KiB", out).group(1))


def cold_measure(images):
    photos = []
    for folder, _, names in sorted(os.walk(sys.argv[5])):
        for name in sorted(names):
            if name.endswith(".jpg"):
                with open(os.path.join(folder, name), "rb") as source:
                    photos.append(source.read())
    photos = photos[:400]
    row = lambda i: (i % 10, photos[i * 7 % len(photos)], len(photos[i * 7 % len(photos)]))
    folder_write(work + "/folder", images, row)
    for kind in KINDS:
        set_write(kind, "%s/%s" % (work, kind), images, row, 100)
    whole = drop(work)
    group = slow_disk()
    try:
        rows_measure(images, row, whole, group)
    finally:
        if group:
            os.rmdir(group)


def rows_measure(images, row, whole, group):
    print("%d photographs of %.0f KiB, shards of 100; one thread, random crops to 224x224. Before each cold measurement %s were dropped. %s" % (
        images, sum(row(i)[2] for i in range(images)) / images / 1024, "all caches (pages, directories, inodes)" if whole else "the pages of the files, but not their directories",
        "The slow disk is the same disk, limited by a control group to %d reads and %d MiB a second, about what a hard disk does." % (LIMIT_READS, LIMIT_BYTES >> 20)
        if group else "No slow disk was modelled: that needs root and the blkio controller."))
    print("\n| images | in the page cache, images/s | cold, images/s | read, KiB per image |%s\n|---|---:|---:|---:|%s" % (
        (" slow disk, images/s | times the folder | read, KiB per image |", "---:|---:|---:|") if group else ("", "")))
    base = None
    for name, kind, window in (("folder", "folder", 0), ("tar", "tar", 0), ("TFRecord", "tfrecord", 0), ("MDS", "mds", 0),
                               ("tar, `--shuffle-window 8`", "tar", 8), ("TFRecord, `--shuffle-window 8`", "tfrecord", 8), ("MDS, `--shuffle-window 8`", "mds", 8)):
        root = "%s/%s" % (work, kind)
        train(root, "--dry-run")  # lists it
        drop(root)
        cold = bench(root, window)
        if group:
            drop(root)
            slow = bench(root, window, group)
            base = base or slow[0]
        warm = None
        if not window:
            subprocess.run("find '%s' -type f -exec cat {} + >/dev/null" % root, shell=True, check=True)
            warm = bench(root, window)[0]
        print("| %s | %s | %.0f | %.0f |%s" % (name, "%.0f" % warm if warm else "", *cold, " %.0f | %.1f | %.0f |" % (slow[0], slow[0] / base, slow[1]) if group else ""), flush=True)


what, towers, work, images = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3], int(sys.argv[4])
{"list": list_measure, "cold": cold_measure, "large": large_measure}[what](images)
