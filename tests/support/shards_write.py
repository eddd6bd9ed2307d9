"""Write a small data set in several formats, the same images in the same order: shards_write.py FOLDER FORMAT...
FORMAT: folder, idx, tar (by the package webdataset, or by tarfile where it is missing), tfrecord, mds, mdsraw. 120 training images, or
as many as the environment's IMAGES says, and 24 for evaluation, of 24 x 24, PNG (without loss), 3 classes."""
import io, json, os, struct, sys, tarfile, zlib

SIDE, CLASSES, SHARD = 24, ("ant", "bee", "cow"), 50


def image(number):  # [SIDE][SIDE][3] bytes; each is different
    return bytes((17 * number + 5 * y * (1 + number % 3) + 11 * x + 83 * c + x * y * number) & 255
                 for y in range(SIDE) for x in range(SIDE) for c in range(3))


def png(pixels, side=SIDE, channels=3):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * side * channels:(y + 1) * side * channels] for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2 if channels == 3 else 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def samples(split):  # in the order of a folder: by class and name
    count, first = (int(os.environ.get("IMAGES", 120)), 0) if split == "train" else (24, 1000)
    for label in range(len(CLASSES)):
        for i in range(label * count // 3, (label + 1) * count // 3):
            number = first + i
            yield "img%05d" % number, label, image(number)


def shards_of(split):
    rows = list(samples(split))
    return [rows[i:i + SHARD] for i in range(0, len(rows), SHARD)]


def write_folder(root):
    for split in ("train", "val"):
        for key, label, pixels in samples(split):
            os.makedirs("%s/%s/%s" % (root, split, CLASSES[label]), exist_ok=True)
            with open("%s/%s/%s/%s.png" % (root, split, CLASSES[label], key), "wb") as to:
                to.write(png(pixels))


def write_idx(root):
    os.makedirs(root)
    for split, name in (("train", "train"), ("val", "t10k")):
        rows = list(samples(split))
        with open("%s/%s-images-idx4-ubyte" % (root, name), "wb") as to:
            to.write(struct.pack(">5I", 0x804, len(rows), SIDE, SIDE, 3) + b"".join(row[2] for row in rows))
        with open("%s/%s-labels-idx1-ubyte" % (root, name), "wb") as to:
            to.write(struct.pack(">2I", 0x801, len(rows)) + bytes(row[1] for row in rows))
    names_write(root)


def names_write(root):
    with open(root + "/classes.txt", "w") as to:
        to.write("".join(name + "\n" for name in CLASSES))


def write_tar(root):
    os.makedirs(root)
    names_write(root)
    try:
        import webdataset
    except ImportError:
        webdataset = None
    for split in ("train", "val"):
        for number, rows in enumerate(shards_of(split)):
            path = "%s/set-%s-%06d.tar" % (root, split, number)
            if webdataset:
                with webdataset.TarWriter(path) as to:
                    for key, label, pixels in rows:
                        to.write({"__key__": key, "png": png(pixels), "cls": label})
                continue
            with tarfile.open(path, "w") as to:
                for key, label, pixels in rows:
                    for suffix, data in (("cls", b"%d" % label), ("png", png(pixels))):
                        member = tarfile.TarInfo("%s.%s" % (key, suffix))
                        member.size = len(data)
                        to.addfile(member, io.BytesIO(data))


# ---- TFRecords of tf.Example, with the keys of the original Inception; labels begin with 1

def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
            table.append(i)
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value, packed=True):
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, v) for v in values))
    if isinstance(values[0], float):
        return field(2, field(1, b"".join(struct.pack("<f", v) for v in values)) if packed
                     else b"".join(b"\x0d" + struct.pack("<f", v) for v in values))
    return field(3, field(1, b"".join(map(varint, values))) if packed else b"".join(b"\x08" + varint(v) for v in values))


def example(features, packed=True):
    return field(1, b"".join(field(1, field(1, key.encode()) + field(2, feature(value, packed))) for key, value in features.items()))


def features_of(key, label, pixels):
    return {"image/height": SIDE, "image/width": SIDE, "image/colorspace": b"RGB", "image/object/bbox/xmin": [0.25, 0.5],
            "image/class/label": label + 1, "image/class/text": CLASSES[label].encode(), "image/filename": key.encode() + b".png",
            "image/encoded": png(pixels)}


def write_tfrecord(root):
    os.makedirs(root)
    try:
        import tfrecord
    except ImportError:
        tfrecord = None
    for split, name in (("train", "train"), ("val", "validation")):
        shards = shards_of(split)
        for number, rows in enumerate(shards):
            path = "%s/%s-%05d-of-%05d" % (root, name, number, len(shards))
            if tfrecord:
                to = tfrecord.TFRecordWriter(path)
                for row in rows:
                    to.write({key: (value, "byte" if isinstance(value, bytes) else "float" if isinstance(value, list) else "int")
                              for key, value in features_of(*row).items()})
                to.close()
                tfrecord.tools.tfrecord2idx.create_index(path, path + ".idx")
                continue
            with open(path, "wb") as to:
                for i, row in enumerate(rows):
                    to.write(record(example(features_of(*row), packed=i % 2 == 0)))


# ---- MDS, as MDSWriter of mosaicml-streaming writes it

def mds_shard(columns, rows):  # columns: {name: (encoding, size or None)}
    names = sorted(columns)
    config = {"version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": 1 << 26, "column_names": names,
              "column_encodings": [columns[n][0] for n in names], "column_sizes": [columns[n][1] for n in names]}
    samples = [b"".join(struct.pack("<I", len(row[n])) for n in names if columns[n][1] is None) + b"".join(row[n] for n in names)
               for row in rows]
    text = json.dumps(config, sort_keys=True).encode()
    at = [4 + 4 * (len(rows) + 1) + len(text)]
    for sample in samples:
        at.append(at[-1] + len(sample))
    data = struct.pack("<%dI" % (len(at) + 1), len(rows), *at) + text + b"".join(samples)
    return data, dict(config, samples=len(rows), zip_data=None)


def mds_write(folder, columns, shards):
    os.makedirs(folder)
    entries = []
    for number, rows in enumerate(shards):
        data, entry = mds_shard(columns, rows)
        entry["raw_data"] = {"basename": "shard.%05d.mds" % number, "bytes": len(data), "hashes": {}}
        entries.append(entry)
        with open("%s/shard.%05d.mds" % (folder, number), "wb") as to:
            to.write(data)
    with open(folder + "/index.json", "w") as to:
        json.dump({"version": 2, "shards": entries}, to, sort_keys=True)


def write_mds(root, raw=False):
    columns = {"label": ("int", 8), "key": ("str", None), "image": ("ndarray:uint8:%d,%d,3" % (SIDE, SIDE), SIDE * SIDE * 3) if raw else ("png", None)}
    for split in ("train", "val"):
        mds_write("%s/%s" % (root, split), columns, [[{"label": struct.pack("<q", label), "key": key.encode(), "image": pixels if raw else png(pixels)}
                                                       for key, label, pixels in rows] for rows in shards_of(split)])
    names_write(root)


def write_mdsraw(root):
    write_mds(root, raw=True)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        globals()["write_" + name](sys.argv[1] + "/" + name)
