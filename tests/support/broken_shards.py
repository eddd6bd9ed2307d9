"""Shards that are damaged, unusual or hostile, each with what `towers data info` (or check) must say about it.
broken_shards.py TOWERS FOLDER KIND: prints a line for each case that went wrong; exit 1 if there is any."""
import gzip, io, json, os, re, shutil, struct, subprocess, sys, tarfile

sys.path.insert(0, os.path.dirname(__file__))
from shards_write import crc32c, example, feature, field, image, masked, mds_shard, png, record, varint

towers, work, kind = sys.argv[1:4]
wrong, cases = 0, 0


def run(name, code, pattern, command="info", arguments=("--val-split", "0.5"), keep=False):
    """The data set work/name; its message must match, and never be the end of the program by a signal. keep: the index of
    the case before."""
    global wrong, cases
    cases += 1
    cache = os.path.join(work, "cache-of-a-case")
    if not keep:
        shutil.rmtree(cache, ignore_errors=True)
    done = subprocess.run([towers, "data", command, name, *arguments], cwd=work, capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, env=dict(os.environ, XDG_CACHE_HOME=cache))
    said = done.stdout + done.stderr
    if done.returncode != code or not re.search(pattern, said, re.S):
        wrong += 1
        print("%s: exit %d, expected %d and '%s': %s" % (name, done.returncode, code, pattern, said))


def folder(name):
    path = os.path.join(work, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def put(name, data, file):
    with open(os.path.join(folder(name), file), "wb") as to:
        to.write(data)


# ---- tars

def member(name, data=b"", **fields):
    made = tarfile.TarInfo(name)
    made.size = len(data)
    for key, value in fields.items():
        setattr(made, key, value)
    return made, data


def tar(members, form=tarfile.USTAR_FORMAT):
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w", format=form) as made:
        for info, data in members:
            made.addfile(info, io.BytesIO(data))
    return to.getvalue()


def pair(key, label=0, number=0, suffix="png"):
    return [member("%s.%s" % (key, suffix), png(image(number))), member(key + ".cls", b"%d" % label)]


def few(count=4):
    return [m for i in range(count) for m in pair("s%03d" % i, i % 2, i)]


def header_changed(data, at, field, value):
    head = bytearray(data[at:at + 512])
    head[field:field + len(value)] = value
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return data[:at] + bytes(head) + data[at + 512:]


def tars():
    whole = tar(few())
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512  # of the last member
    put("whole", whole, "a.tar")
    run("whole", 0, "WebDataset tars, divided.*training: 2 images")
    for cut in sorted({1, 511, 512, 513, end - 1, end, end + 511} | set(range(0, end, 512))):
        put("cut", whole[:cut], "a.tar")
        run("cut", 3, "a.tar'.*(cut off|empty|damage|expected a tar)")
    put("flipped", whole[:1024 + 600] + bytes([whole[1024 + 600] ^ 1]) + whole[1024 + 601:], "a.tar")
    second = whole.index(b"s001.png")
    put("header", whole[:second + 100] + b"x" + whole[second + 101:], "a.tar")
    run("header", 3, r"a.tar'.*offset %d: .*damage" % second)
    # fault: F24 (links and paths: below)
    put("huge", header_changed(whole, second, 124, b"77777777777\0"), "a.tar")
    run("huge", 3, "s001.png.*8589934591 bytes.*cut off")
    put("endless", header_changed(whole, second, 124, b"\x80" + b"\x7f" * 11), "a.tar")
    run("endless", 3, "a.tar'.*offset")
    put("negative", header_changed(whole, second, 124, b"\xff" * 12), "a.tar")
    run("negative", 3, "a.tar'.*offset")
    for suffix, open_as in ((".tar.gz", gzip.compress), (".tar", gzip.compress), (".tgz", gzip.compress)):
        put("packed", open_as(whole), "a" + suffix)
        run("packed", 3, "a%s' is compressed.*unpack it first" % suffix)
    put("member-gz", tar([member("a.png.gz", gzip.compress(png(image(1)))), member("a.cls", b"0")]), "a.tar")
    run("member-gz", 3, r"'a.png.gz' at offset 512 is compressed: unpack the members")
    put("hard", tar(few() + [member("z.png", type=tarfile.LNKTYPE, linkname="s000.png"), member("z.cls", b"1")]), "a.tar")
    run("hard", 3, "'z.png' .*is a link.*--hard-dereference")
    put("soft", tar(few() + [member("z.png", type=tarfile.SYMTYPE, linkname="/etc/passwd"), member("z.cls", b"1")]), "a.tar")
    run("soft", 3, "'z.png' .*is a link")
    put("fifo", tar(few() + [member("z.png", type=tarfile.FIFOTYPE), member("d.x", type=tarfile.DIRTYPE)]), "a.tar")
    run("fifo", 0, "training: 2 images")
    path = folder("sparse")
    with open(path + "/a.png", "wb") as to:
        to.truncate(1 << 20)
        to.seek(1 << 19)
        to.write(b"x" * 4096)
    for form in ("gnu", "posix"):
        subprocess.run(["tar", "-C", path, "--format=" + form, "-S", "-cf", path + "/a.tar", "a.png"], check=True)
        run("sparse", 3, "'a.png' .*sparse.*without --sparse")
    put("twice", tar(pair("a") + pair("b") + pair("b")), "a.tar")
    run("twice", 0, r"2 members of the tars are replaced by later ones of the same names")
    put("apart", tar([pair("a")[0], pair("b")[0], pair("a")[1], pair("b")[1]]), "a.tar")
    run("apart", 3, r"sample 'a' has no label .*its members are .png \(the members of a sample must be next to each other")
    put("no-image", tar(few() + [member("z.seg.png", b"x"), member("z.cls", b"1")]), "a.tar")
    run("no-image", 3, r"sample 'z' has no image .*its members are .seg.png .cls")
    put("empty-image", tar(few() + [member("z.png"), member("z.cls", b"1")]), "a.tar")
    run("empty-image", 3, r"sample 'z' \(offset \d+\) has 0 bytes")
    for text, why in ((b"one", "not a decimal number"), (b"", "not a decimal number"), (b"1 2", "not a decimal number"),
                      (b"9" * 70, "has 70 bytes"), (b"-1", "label from 0 to 1048575, found -1"),
                      (b"99999999999999999999", "found 9223372036854775807"), (b"1048576", "found 1048576"),
                      (b"1\0", "not a decimal number")):
        put("label", tar([member("a.png", png(image(1))), member("a.cls", text)]), "a.tar")
        run("label", 3, "a.tar'.*sample 'a'.*" + why)
    for text, why in ((b"{", "is not JSON"), (b"[1]", "has no label"), (b"{}", "has no label"),
                      (b'{"label": "cat"}', "not an integer"), (b'{"label": 1.5}', "not an integer"),
                      (b'{"label": 0, "label": 1}', "has a key twice"), (b'{"class": 0, "label": 1}', 'has two labels, "label" 1 and "class" 0'),
                      (b'{"class": 0, "cls": 1}', 'has two labels, "cls" 1 and "class" 0'),
                      (b"[" * 100000, "is not JSON"), (b'{"label": 123456789012345678901234567890}', "is not JSON")):
        put("json", tar([member("a.png", png(image(1))), member("a.json", text)]), "a.tar")
        run("json", 3, "a.tar'.*sample 'a'.*" + why)
    same = [member("%s.json" % name, b'{"class": %d, "label": %d, "cls": "a"}' % (label, label)) for label, name in enumerate("ab")]
    put("json", tar([pair("a", 0)[0], same[0], pair("b", 1)[0], same[1]]), "a.tar")
    run("json", 0, "classes: 2", arguments=())
    put("joined", whole + whole, "a.tar")
    run("joined", 3, "expected zeros after the end of the tar")
    put("nothing", tar([]), "a.tar")
    run("nothing", 3, "no sample in 1 shards")
    put("strange", tar(few() + [member("README.md", b"x"), member("NOTES.md", b"x"), member("__meta__", b"x"), member(".hidden.png", b"x"),
                                member("dir.d/plain", b"x"), member("x.png/" + "y" * 60, b"x")]), "a.tar")
    run("strange", 0, "training: 2 images")
    # names of every kind: their damaged images are named with the offset that tarfile finds
    names = ["../../etc/a", "/abs/b", "\u00e4/\u00f6", "n" * 140, "m" * 300 + "/k", "o" * 200, "new\nline", "sp ace"]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = tar([m for i, n in enumerate(names) for m in (member(n + ".PNG", b"damaged%d" % i), member(n + ".cls", b"%d" % (i % 2)))], form)
        put("names", data, "a.tar")
        for info in tarfile.open(fileobj=io.BytesIO(data)):
            if info.name.endswith("PNG"):
                shown = info.name.replace("\n", "\\x0a")
                run("names", 3, re.escape("a.tar: %s, offset %d" % (shown, info.offset_data)), "check")
    put("beside", whole, "a.tar")
    for end in ("md5", "sha1", "sha256", "sha512", "csv", "yaml", "log", "json", "txt", "idx"):
        with open(os.path.join(work, "beside/a.tar." + end), "w") as to:
            to.write("no shard")
    run("beside", 0, "training: 2 images")
    for at, file in (("late", "late/classes.txt"), ("late/a.tar", "late/classes.txt"), ("late/{a,a}.tar::late/a.tar", "classnames.txt")):
        put("late", whole, "a.tar")
        run(at, 0, "training: [26] images")
        with open(os.path.join(work, file), "w") as to:
            to.write("cat\ndog\n")
        run(at, 0, " cat\n", keep=True)
        os.unlink(os.path.join(work, file))
        run(at, 0, "classes: 2\n +0 +[0-9]+ +[0-9]+ *\n", keep=True)
    put("lost", whole, "a.tar")
    os.symlink("nowhere", os.path.join(work, "lost/b.tar"))
    run("lost", 3, "shard '.*b.tar': No such file")
    put("{x}", whole, "a{0,1}.tar")
    run("{x}/a{0,1}.tar", 0, "training: 2 images")
    run("{x}", 0, "training: 2 images")
    for index in (os.path.join(work, "cache-of-a-case/towers/index", name) for name in os.listdir(os.path.join(work, "cache-of-a-case/towers/index"))):
        os.unlink(index)
        os.mkdir(index)
    run("{x}", 0, "training: 2 images", keep=True)
    path = folder("upper")
    for file in ("Set-Train.tar", "Set-VAL.tar"):
        with open("%s/%s" % (path, file), "wb") as to:
            to.write(whole)
    run("upper", 0, "evaluation: 4 images", arguments=())
    path = folder("mixed")
    for name, data in (("train-0.tar", whole), ("other-0.tar", whole), ("val-0.tar", whole)):
        with open("%s/%s" % (path, name), "wb") as to:
            to.write(data)
    run("mixed", 3, "other-0.tar': expected train, val, validation or test in its name")
    os.unlink(path + "/other-0.tar")
    run("mixed", 2, "--val-split: .* already has shards for evaluation")
    with open(path + "/classes.txt", "w") as to:
        to.write("only\n")
    put("many", tar(pair("a", 0) + pair("b", 7)), "a.tar")
    with open(os.path.join(work, "many/classes.txt"), "w") as to:
        to.write("zero\none\n")
    run("many", 3, r"b.png at offset \d+ has label 7, but .*classes.txt names 2 classes")
    run("whole/{a,b}.tar", 2, "whole/b.tar.*No such file")
    run("whole/{a.tar", 2, "brace is not closed")
    run("whole/a.{tar,tar}::whole/a.tar", 0, "training: 6 images")
    run("whole/a{0..99999999}.tar", 2, "at most 1048576 numbers")


# ---- TFRecords

def photo(label=1, number=0, **others):
    features = {"image/encoded": png(image(number)), "image/class/label": label, "image/filename": b"p%d.png" % number}
    features.update({key.replace("__", "/"): value for key, value in others.items()})
    return {key: value for key, value in features.items() if value is not None}


def records(*features):
    return b"".join(record(example(f)) for f in features)


def tfrecords():
    name = "train-00000-of-00001"
    assert crc32c(b"123456789") == 0xe3069283
    whole = records(*[photo(1 + i % 2, i) for i in range(4)])
    first = len(records(photo(1, 0)))

    def reports(data, pattern, code=3, command="info"):
        put("records", data, name)
        run("records", code, pattern, command)

    reports(whole, "TFRecords, labels from 1, divided.*training: 2 images.*0 +1 +1 ", 0)
    run("records", 0, "TFRecords, divided.*classes: 3", arguments=("--val-split", "0.5", "--label-base", "0"), keep=True)
    for cut in sorted({0, 1, 8, 11, 12, 13, first - 5, first - 4, first - 1, first + 1, first + 12, first + 500, len(whole) - 4, len(whole) - 1}):
        reports(whole[:cut], name + "'.*(cut off|empty)")
    # fault: F23
    for flip in (first, first + 3, first + 7, first + 8, first + 11):
        reports(whole[:flip] + bytes([whole[flip] ^ 64]) + whole[flip + 1:], r"record 1 \(offset %d\): .*a length whose CRC is wrong" % first)
    length = struct.pack("<Q", (1 << 64) - 20)
    reports(whole[:first] + length + masked(length) + whole[first + 12:], r"record 1 \(offset %d\) has 18446744073709551596 bytes.*cut off" % first)
    for at in (first - 1, first // 2):  # the CRC, the picture: found when the data are read
        reports(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:], "p0.png, offset 12: .*CRC of its .*damaged", 3, "check")
    reports(gzip.compress(whole), "is compressed.*unpack it first")
    put("table", b"PAR1" + whole, name + ".parquet")
    run("table", 3, "train-00000-of-00001.parquet' is a Parquet table, which is not read")
    # fault: F25
    reports(records(photo(None)), "record 0 .*no label")
    reports(records({"image/class/label": 1}), "record 0 .*no image")
    reports(records({"image/class/label": 1, "image/encoded": 3}), "record 0 .*no image")
    reports(records(photo(1, image__encoded=b""), photo(1, 1, image__encoded=b"")), "has no image", 3, "check")
    reports(records(photo(1, image__encoded=[png(image(0)), png(image(1))]), photo(1, 1)), "p0.png, offset 12 has several images", 3, "check")
    reports(records(photo(b"1")), "record 0 .*bytes as its label: expected one integer")
    reports(records(photo(1.0)), "record 0 .*floats as its label: expected one integer")
    reports(records(photo([1, 2])), "record 0 .*several labels")
    reports(records(dict(photo(1), label=2)), "record 0 .*several labels, 1 as image/class/label and another as label")
    reports(records(*[dict(photo(1 + i % 2, i), label=1 + i % 2) for i in range(4)]), "training: 2 images", 0)
    reports(records(photo(-1)), "error: '[^']*': record 0 .*label from 0 to 1048575, found -1")
    reports(records(photo(1 << 40)), "record 0 .*found 1099511627776")
    reports(record(b""), "record 0 .*no image")
    reports(record(b"\xff" * 40), "record 0 .*byte 0 of 40 of its tf.Example: expected a number")
    reports(record(b"\x0a\x05\x0a"), "a field is longer than the message")
    reports(record(b"\x0b\x0a"), "a field, found one of an unknown kind")
    deep = b""
    for _ in range(2000):
        deep = field(1, deep)
    reports(record(deep), "record 0 .*no image")
    reports(records(photo(0), photo(0), photo(5), photo(5)), "TFRecords, divided.*classes: 6.* 5 +1 +1 ", 0)
    # fields of no interest, two of one key (the last counts), tfds's keys, unpacked lists, no file name
    odd = varint(9 << 3) + varint(77) + field(7, b"x") + example(photo(7, 1)) + example({"image/class/label": 0, "image/filename": b"odd"}, packed=False)
    reports(record(odd) * 2 + records(*2 * [{"image": b"damaged", "label": 1}]), "record 2, offset [0-9]+: .*2 of 4 images", 3, "check")
    put("index", whole, name)
    lines = [(i, len(records(photo(1 + i % 2, i)))) for i in range(4)]
    good, at = "", 0
    for _, size in lines:
        good += "%d %d\n" % (at, size)
        at += size
    for text, code, pattern in ((good, 0, "training: 2"), (good.replace("\n", "", 1), 3, "line 1: expected|line 2: expected"),
                                (good[:-3], 3, "line 4: expected"), (good + "7 7\n", 3, "line 5: expected its end"),
                                ("", 3, 'line 1: expected "0 %d".*delete it' % lines[0][1]), (good.replace("0 ", "1 ", 1), 3, 'found "1 ')):
        for end in (".idx",):
            with open(os.path.join(work, "index", name + end), "w") as to:
                to.write(text)
            run("index", code, pattern)


# ---- MDS

def mds():
    columns = {"image": ("png", None), "label": ("int", 8)}
    rows = [{"image": png(image(i)), "label": struct.pack("<q", i % 2)} for i in range(4)]

    def reports(pattern, code=3, command="info", data=None, entry=None, text=None, named="shard.00000.mds", columns=columns, rows=rows, **fields):
        path = folder("mds")
        made, entry_made = mds_shard(columns, rows)
        made = data(made) if data else made
        entry_made["raw_data"] = {"basename": "shard.00000.mds", "bytes": len(made), "hashes": {}}
        entry_made.update(entry or {})
        with open(path + "/" + named, "wb") as to:
            to.write(made)
        with open(path + "/index.json", "w") as to:
            to.write(text if text is not None else json.dumps({"version": 2, "shards": [entry_made]}))
        run("mds", code, pattern, command)

    def patched(at, bytes):
        return lambda data: data[:at] + bytes + data[at + len(bytes):]

    whole, _ = mds_shard(columns, rows)
    offsets = struct.unpack("<5I", whole[4:24])
    reports("MDS shards, divided.*training: 2 images", 0)
    for cut in sorted({0, 1, 3, 4, 7, 8, 23, 24, 25, offsets[0] - 1, offsets[0], offsets[1], offsets[1] + 1, len(whole) - 1}):
        reports("shard.00000.mds'.*(cut off|expected 4 samples|damaged)", data=lambda data: data[:cut])
    reports("its samples end at", data=lambda data: data + b"x")
    reports("expected 4 samples.* found 4294967295", data=patched(0, b"\xff" * 4))
    reports("4294967295 samples, but the file has", data=patched(0, b"\xff" * 4), entry={"samples": 0xffffffff})
    reports("sample 1 begins at 0: expected", data=patched(8, b"\0" * 4))
    reports("sample 0 begins at 4294967295: expected", data=patched(4, b"\xff" * 4))
    reports("expected the JSON of its columns", data=patched(24, b"x"))
    reports(r"sample 0 \(offset %d\): its columns end at .*damaged" % offsets[0], data=patched(offsets[0], b"\xff" * 4))
    reports(r"sample 3 .*found -2", data=patched(len(whole) - 8, struct.pack("<q", -2)))
    reports("mds: sample 0, offset %d: " % (offsets[0] + 4), command="check", data=patched(offsets[0] + 4, b"x" * 8))
    for inner, below in (("a", "a/shard.00000.mds"), ("a/b", "a/b/shard.00000.mds")):  # as several writers and merge_index leave it
        path = folder("parts")
        os.makedirs("%s/%s" % (path, inner))
        with open("%s/%s" % (path, below), "wb") as to:
            to.write(whole)
        entry = dict(mds_shard(columns, rows)[1], raw_data={"basename": below, "bytes": len(whole), "hashes": {}})
        with open(path + "/index.json", "w") as to:
            to.write(json.dumps({"version": 2, "shards": [entry]}))
        run("parts", 0, "MDS shards, divided.*training: 2 images")
    for below in ("a/../../x.mds", "a//x.mds", "a/", "/x.mds", "."):
        reports("below it in raw_data.basename, found '%s'" % re.escape(below), entry={"raw_data": {"basename": below, "bytes": 1}})
    for entry, why in (({"format": "json"}, "expected \"format\": \"mds\""), ({"version": 1}, "\"version\": 2"),
                       ({"samples": 5}, "expected 5 samples .* found 4"), ({"raw_data": {"basename": "../a.mds", "bytes": 1}}, "raw_data.basename, found '../a.mds'"),
                       ({"raw_data": {"basename": "/etc/passwd", "bytes": 1}}, "found '/etc/passwd'"), ({"raw_data": None}, "raw_data.basename, found ''"),
                       ({"raw_data": {"basename": "no.mds", "bytes": 1}}, "no.mds': No such file"),
                       ({"raw_data": {"basename": "no.mds", "bytes": 1}, "zip_data": {"basename": "no.mds.zstd"}}, "is compressed.*decompress it"),
                       ({"raw_data": {"basename": "shard.00000.mds", "bytes": 7}}, "expected 7 bytes")):
        reports("index.json': shard 0.*" + why, entry=entry)
    for text, why in (('{"shards": [', "line 1"), ('{"shards": 3}', "expected the index of MDS"), ('{"version": 2, "shards": {}}', "expected the index of MDS"),
                      ('{"version": 2, "shards": []}', "no sample|lists no shards|no data set"), ('{"version": 2, "shards": [1]}', "shard 0")):
        reports(why, text=text)
    for changed, row, why in (({"image": ("png", None), "label": ("str", None)}, {"label": b"1"}, "column 'label' is str: .*Columns of integers: none"),
                              ({"image": ("png", None), "a": ("int", 8), "b": ("int", 8)}, {"a": b"12345678", "b": b"12345678"}, "no column of labels: .*'a' .int., 'b' .int."),
                              ({"class": ("int", 8), "image": ("png", None), "y": ("int8", 1)}, {"class": b"12345678", "y": b"1"},
                               "several columns of labels, 'class' .int. and 'y' .int8., .*name that one 'label'"),
                              ({"img": ("png", None), "label": ("int", 8), "x": ("jpeg", None)}, {"img": b"1", "x": b"2"},
                               "several columns of images, 'img' .png. and 'x' .jpeg., .*name that one 'image'"),
                              ({"image": ("pkl", None), "label": ("int", 8)}, {}, "no column of images"),
                              ({"photo": ("bytes", None), "label": ("int", 8)}, {"photo": b"x"}, "no column of images"),
                              ({"image": ("png", None), "label": ("int", 4)}, {"label": b"1234"}, "'label' is int of size 4"),
                              ({"image": ("png", 5), "label": ("int", 8)}, {"image": b"12345"}, "'image' is png of size 5"),
                              ({"image": ("ndarray:uint8:24,24,3", 7), "label": ("int", 8)}, {"image": b"1234567"}, "of size 7"),
                              ({"image": ("ndarray:uint8:24,24,1", 576), "label": ("int", 8)}, {"image": b"1" * 576}, "no column of images")):
        reports(why, columns=changed, rows=[dict(r, **row) for r in rows])
    reports("MDS shards.*training: 2 images", 0, columns={"x": ("bytes", None), "y": ("uint8", 1)}, rows=[{"x": r["image"], "y": r["label"][:1]} for r in rows])
    both = {"class": ("int8", 1), "image": ("png", None), "img": ("png", None), "label": ("int", 8), "target": ("str", None), "y": ("int8", 1)}
    reports("training: 2 images.*labels are the column 'label'; 'y' .int8. is not used.*0 +1 +1 .*1 +1 +1 ", 0, columns=both,
            rows=[dict(r, **{"class": b"\7", "img": b"x", "target": b"ant", "y": b"\7"}) for r in rows])
    reports("labels are the column 'class'; 'label' .str. is not used", 0, columns={"class": ("int", 8), "image": ("png", None), "label": ("str", None)},
            rows=[{"class": r["label"], "image": r["image"], "label": b"ant"} for r in rows])
    reports("label from 0 to 1048575, found 9223372036854775807", columns={"x": ("bytes", None), "y": ("uint64", 8)}, rows=[{"x": b"x", "y": b"\xff" * 8}])


globals()[kind]()
print("%d broken shards (%s)" % (cases, kind))
sys.exit(wrong > 0)
