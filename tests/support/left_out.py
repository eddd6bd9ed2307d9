"""What each reader uses of a data set and what it leaves out, which a run records as its inventory (env.json), `towers data info` prints
and the index keeps: a table of odd files and members. left_out.py TOWERS FOLDER: prints a line for each case that went wrong; exit 1 if
there is any."""
import gzip, io, json, os, re, shutil, struct, subprocess, sys, tarfile

sys.path.insert(0, os.path.dirname(__file__))
from shards_write import example, image, mds_shard, png, record

towers, work = sys.argv[1:3]
wrong = 0
pictures = iter(range(1, 10000))
DOUBLE = b"\0\5\x16\7" + bytes(60)  # what macOS writes as ._NAME


def picture():
    return png(image(next(pictures)))


def tar(members):
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return to.getvalue()


def pair(key, label=0):
    return [(key + ".png", picture()), (key + ".cls", b"%d" % label)]


def few(count=4, prefix="s"):
    return [member for i in range(count) for member in pair("%s%03d" % (prefix, i), i % 2)]


def records(count=4):
    return b"".join(record(example({"image/encoded": picture(), "image/class/label": i % 2})) for i in range(count))


def folder(count=4):
    return {"%s/%s/%d.png" % (part, c, i): picture() for part in ("train", "val") for c in "ab" for i in range(count // 2)}


def tars(**more):
    """A tar for each part; more: of the training."""
    return {"train-0.tar": tar(few() + more.pop("members", [])), "val-0.tar": tar(few(2, "v")), **more.pop("files", {})}


def tfrecords(**files):
    return {"train-00000-of-00002": records(), "train-00001-of-00002": records(2), "validation-00000-of-00001": records(2), **files}


def mds(root, count=2, listed=None):
    made = {}
    entries = []
    for number in range(count):
        data, entry = mds_shard({"label": ("int", 8), "image": ("png", None)},
                                [{"label": struct.pack("<q", i % 2), "image": picture()} for i in range(3)])
        entry["raw_data"] = {"basename": "shard.%05d.mds" % number, "bytes": len(data), "hashes": {}}
        entries.append(entry)
        made["%s/shard.%05d.mds" % (root, number)] = data
    made[root + "/index.json"] = json.dumps({"version": 2, "shards": entries[:listed]}).encode()
    return made


def mds_set(**files):
    return {**mds("train"), **mds("val", 1), **files}


def idx(name, *sizes, labels=False):
    body = bytes(i % 2 for i in range(sizes[0])) if labels else bytes(next(pictures) % 256 for _ in range(sizes[0] * 64))
    return struct.pack(">I%dI" % len(sizes), 0x800 + len(sizes), *sizes) + body


def idx_set(sep="-", ending="", pack=lambda data: data, **files):
    return {**{"%s-%s%sidx%d-ubyte%s" % (part, kind, sep, 1 if kind == "labels" else 3, ending):
               pack(idx(part, count, labels=True) if kind == "labels" else idx(part, count, 8, 8))
               for part, count in (("train", 6), ("t10k", 4)) for kind in ("images", "labels")}, **files}


def labeled(*rows, **files):
    made = {"%s/labels.csv" % part: ("file,labels\n" + "".join(row + "\n" for row in rows)).encode() for part in ("train", "val")}
    made.update({"%s/%s.png" % (part, name): picture() for part in ("train", "val") for name in "xyz"})
    return {**made, **files}


def make(name, files):
    path = os.path.join(work, name)
    shutil.rmtree(path, ignore_errors=True)
    for file, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(path, file)), exist_ok=True)
        if isinstance(data, tuple):
            os.symlink(data[0], os.path.join(path, file))
            continue
        with open(os.path.join(path, file), "wb") as to:
            to.write(data)


def run(*arguments):
    done = subprocess.run([towers, *arguments], cwd=work, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          env=dict(os.environ, XDG_CACHE_HOME=os.path.join(work, "cache")))
    return done.returncode, done.stdout + done.stderr


def complain(case, text):
    global wrong
    wrong += 1
    print("%s: %s" % (case, text))


def taken(case, files, used, skipped=(), arguments=(), classes=None):
    """The training part's inventory: samples that are used, and of each reason (why, count, kinds, end of the first's name)."""
    make(case, files)
    seen = []
    for again in range(2):  # from the files, then from the index in the cache
        shutil.rmtree(os.path.join(work, "runs"), ignore_errors=True)
        code, text = run("train", "fashion_cnn", "--data-path", case, "--epochs", "0", "-b", "2", "--towers", "1", "--device", "cpu",
                         "--experiment", "x", *arguments)
        if code:
            return complain(case, "exit %d: %s" % (code, text))
        with open(os.path.join(work, "runs/x/env.json")) as file:
            data = json.load(file)["training_data"]
        inventory = data["inventory"]
        seen.append(inventory)
        found = [(s["why"], s["count"], s["kinds"]) for s in inventory["skipped"]]
        if inventory["used"] != used or data["images"] != used or any(f[:2] != s[:2] or s[2] not in (None, f[2]) for f, s in zip(found, skipped)) or len(found) != len(skipped):
            return complain(case, "expected %d used and %s, found %s" % (used, skipped, inventory))
        for row, (_, count, kinds, first) in zip(inventory["skipped"], skipped):
            if not row["first"].endswith(first or ""):
                complain(case, "the first: expected %s, found %s" % (first, row))
            for line in re.findall(r"^.*%s.*$" % re.escape(row["first"]), text, re.M)[:1] or [""]:
                if "%d " % count not in line or "(%s)" % (kinds or row["kinds"]) not in line:
                    complain(case, "the run does not name %s: %s" % (row, text))
    if seen[0] != seen[1]:
        complain(case, "the index says %s, the files said %s" % (seen[1], seen[0]))
    for command in ("info", "check"):
        code, text = run("data", command, case, *[a for a in arguments if a == "--partial-shards"])
        for row in inventory["skipped"]:
            if code or row["first"] not in text:
                complain(case, "data %s: exit %d, %s is not named: %s" % (command, code, row, text))
    if classes and not all(name in text for name in classes):
        complain(case, "the classes are not %s" % (classes,))


def refused(case, files, code, pattern, arguments=()):
    make(case, files)
    found, text = run("data", "info", case, *arguments)
    if found != code or not re.search(pattern, text, re.S):
        complain(case, "exit %d, expected %d and '%s': %s" % (found, code, pattern, text))


def folders():
    left = {"train/__MACOSX/a/._0.png": DOUBLE, "train/a/._0.png": DOUBLE, "train/a/@eaDir/0.png": picture(), "train/b/Thumbs.DB": b"x",
            "train/$RECYCLE.BIN/0.png": picture(), "train/#recycle/0.png": picture(), "train/lost+found/0.png": picture(),
            "train/.git/0.png": picture(), "train/b/.ipynb_checkpoints/0.png": picture(), "train/b/.DS_Store": b"x", "train/b/desktop.ini": b"x"}
    make("listed", {**folder(), **left})
    code, text = run("data", "info", "listed")
    for name in ("__MACOSX", "._*", "@eaDir", "Thumbs.db", "$RECYCLE.BIN", "#recycle", "lost+found", ".git", ".ipynb_checkpoints", ".DS_Store"):
        if "1 " + name not in text:
            complain("listed", "%s is not counted: %s" % (name, text))
    if "11 files and folders that other programs left behind" not in text or "training: 4 images" not in text:
        complain("listed", text)
    taken("mac", {**folder(), "train/__MACOSX/a/._0.png": DOUBLE, "train/a/._0.png": DOUBLE}, 4,
          [("foreign", 2, "1 __MACOSX, 1 ._*", "/train/__MACOSX")])
    taken("other-files", {**folder(), "train/a/x.cr3": b"x", "train/b/y.svg": b"x", "train/z.png": picture()}, 4,
          [("not-an-image", 2, "1 .cr3, 1 .svg", "/train/a/x.cr3"), ("beside-classes", 1, "1 .png", "/train/z.png")])
    code, text = run("predict", "runs/x", "listed/train/a", "listed/train/b", "--device", "cpu")
    if "6 files and folders" not in text or code or text.count("%") < 4 or "@eaDir/0.png" in text.replace("is listed/train/a/@eaDir", ""):
        complain("predict", text)
    taken("rows", labeled("x,a b", "y,b", **{"train/@eaDir/x.png": picture(), "train/notes.txt": b"x"}), 2,
          [("not-an-image", 1, "1 .txt", "/train/notes.txt"), ("not-listed", 1, "1 .png", "/train/z.png"), ("foreign", 1, "1 @eaDir", "/train/@eaDir")],
          ("--loss", "bce"))


def kaggle():
    """Images for tests without labels: predicted, described, never evaluated."""
    files = {**folder(8), **{"test/%d.png" % i: picture() for i in range(3)}}
    del files["val/a/0.png"]
    taken("kaggle", files, 8)
    code, text = run("predict", "runs/x", "kaggle", "--split", "test", "--csv", "--top", "1", "--device", "cpu")
    if code or len(re.findall(r"/kaggle/test/\d\.png", text)) != 3:
        complain("predict --split test", "exit %d: %s" % (code, text))
    for data in (("kaggle", "--split", "test"), ("kaggle/test",)):
        code, text = run("eval", "runs/x", "--data-path", *data, "--device", "cpu")
        advice = re.search(r"have no labels.*to predict them: towers (predict) RUN (.*)", text)
        if code != 3 or not advice:
            complain("eval of " + data[0], "exit %d: %s" % (code, text))
            continue
        code, text = run("predict", "runs/x", *advice.group(2).split(), "--device", "cpu")
        if code or text.count(".png") != 3:
            complain("the advice for " + data[0], "exit %d: %s" % (code, text))
    make("planet", {**labeled("x,a b", "y,b"), **{"test/%d.png" % i: picture() for i in range(3)}})
    code, text = run("predict", "runs/x", "planet", "--split", "test", "--csv", "--top", "1", "--device", "cpu")
    if code or len(re.findall(r"/planet/test/\d\.png", text)) != 3:
        complain("predict --split test beside labels.csv", "exit %d: %s" % (code, text))


def shards():
    whole = tar(few())
    for ending in (".1", ".part", "~", " (1)"):
        taken("copy", {"train-0.tar": whole, "train-0.tar" + ending: whole, "val-0.tar": tar(few(2, "v"))}, 4,
              [("not-a-shard", 1, "1 %s" % (ending if re.fullmatch(r"\.\w+", ending) else "other"), "/train-0.tar" + ending)])
        taken("copied", tfrecords(**{"train-00000-of-00002" + ending: records(2)}), 6,
              [("not-a-shard", 1, "1 %s" % (ending if re.fullmatch(r"\.\w+", ending) else "other"), "/train-00000-of-00002" + ending)])
    for name in ("train-0 (1).tar", "train-0 copy.tar", "train-0-Copy.tar"):
        refused("twin", {"train-0.tar": whole, name: whole, "val-0.tar": tar(few(2, "v"))}, 3, "are equal, so that each of their images would count twice")
    other = whole.replace(b"\x00\x00\x00\x00IEND", b"\x00\x00\x00\x01IEND") # samples of the same places and names
    refused("twin", {"train/0.tar": whole, "train/b.tar": other, "train/c.tar": whole, "val/v.tar": tar(few(2, "v"))}, 3,
            "/0.tar' and '[^ ]*/c.tar' are equal")
    for part, below in (("train", "b/x.txt"), ("train", "b/0.tar"), ("val", "a/0.png")):
        for beside in ({}, {part + "/0.tar": whole}):
            parts = {"train/t.tar": whole, "val/v.tar": tar(few(2, "v")), "test/t.tar": tar(few(2, "t"))}
            del parts[part + "/" + part[0] + ".tar"]
            refused("mixed", {**parts, **beside, part + "/" + below: picture()}, 3, "/%s' holds folders, but other parts" % part)
    # a part that was empty when its set was listed is looked at again
    make("filled", {"train/t.tar": whole, "test/t.tar": tar(few(2, "t")), "val/notes.txt": b"x"})
    first, text = run("data", "info", "filled")
    make("filled/val/a", {"0.png": picture()})
    later, said = run("data", "info", "filled")
    if first or later != 3 or "val' holds folders, but other parts" not in said:
        complain("filled", "exit %d, then %d: %s%s" % (first, later, text, said))
    refused("tests alone", {"test/t.tar": tar(few(30, "t"))}, 2, "no shards named train, but test", ("--val-split", "0.2"))
    # what stands in for the training part is found by those alone who may take it
    make("alone", {"val/v.tar": tar(few(2, "v"))})
    for command, code, pattern in ((("data", "info", "alone"), 0, "evaluation: 2 images"),
                                   (("train", "fashion_cnn", "--data-path", "alone", "--epochs", "0", "--device", "cpu"), 2, "no shards named train, but val")):
        found, text = run(*command)
        if found != code or pattern not in text:
            complain("alone", "exit %d, expected %d and '%s': %s" % (found, code, pattern, text))
    refused("link", {"train-0.tar": whole, "train-latest.tar": ("train-0.tar",), "val-0.tar": tar(few(2, "v"))}, 3, "are equal")
    taken("packed", {"train-0.tar": whole, "train-0.tar.gz": gzip.compress(whole), "val-0.tar": tar(few(2, "v"))}, 4,
          [("not-a-shard", 1, "1 .gz", "/train-0.tar.gz")])
    taken("beside", tars(files={"train-README.md": b"x", "train-0.idx": b"x", "train-0.json": b"{}", "train-0.parquet": b"PAR1", "._train-0.tar": DOUBLE}), 4,
          [("foreign", 1, "1 ._*", "/._train-0.tar"), ("beside", 3, None, None)])
    taken("endings", {"train/a.TAR": tar(few(2, "a")), "train/b-00000-of-00001.tar": tar(few(2, "b")), "train/c.tar-0-of-1": tar(few(2, "c")),
                      "val/v.tar": tar(few(2, "v"))}, 6)
    taken("records", {"train/a.tfrecord": records(2), "train/b.tfrecords": records(2), "train/c.tfrec": records(2), "train/d.record": records(2),
                      "train/e.tfrecord-00000-of-00001": records(2), "val/v.tfrecord": records(2)}, 10)
    for missing in (0, 1, 2):
        files = {"train-%05d-of-00003" % i: records() for i in range(3) if i != missing}
        files["validation-00000-of-00001"] = records(2)
        name = "train-%05d-of-00003" % missing
        refused("absent", files, 3, r"/%s' is not there.*--partial-shards" % name)
        taken("partial", files, 8, [("absent", 1, "1 missing", "/" + name)], ("--partial-shards",))
        if run("data", "info", "partial")[0] != 3:  # though an index is there
            complain("partial", "missing shards are not refused without --partial-shards")
    refused("absent-tar", {"train-0-of-3.tar": whole, "val-0.tar": tar(few(2, "v"))}, 3, r"train-1-of-3.tar' is not there.* \(2 of them are not there\)")
    taken("from-one", {"train-1-of-2.tar": tar(few(2, "a")), "train-2-of-2.tar": tar(few(2, "b")), "val-0.tar": tar(few(2, "v"))}, 4)
    taken("one-file", {"train-00000-of-00003": records(), "validation-00000-of-00001": records(2)}, 4, [("absent", 2, "2 missing", "/train-00001-of-00003")],
          ("--partial-shards",))
    refused("two-for-one", tfrecords(**{"train-00000-of-00002.tfrecord": records(2)}), 3, "have the same number: remove one of them")
    refused("two-sets", tfrecords(**{"train-00000-of-00001": records(2)}), 3, "is one of 1, but .* is one of 2")
    refused("beyond", {"train-5-of-2.tar": whole, "train-0-of-2.tar": tar(few(2, "b")), "val-0.tar": tar(few(2, "v"))}, 3, "expected a number from 0 to 1")
    for name, text in (("label.labels.txt", b"ant\nbee\n"), ("labels.txt", b"0:ant\n1:bee\n"), ("labels.txt", b"ant\nbee\n")):
        taken("named", tfrecords(**{name: text}), 6)
        code, text = run("data", "info", "named")
        if not re.search(r"0 .* ant\n.*1 .* bee\n", text):
            complain(name, text)
    refused("misnumbered", tfrecords(**{"labels.txt": b"0:ant\n2:bee\n"}), 3, 'labels.txt\': line 2: expected "1:"')


def members():
    taken("dotted", tars(members=pair("photo.v2.0004") + pair("photo.v2.0005")), 4, [("no-sample", 4, "2 .png, 2 .cls", "/train-0.tar/photo.v2.0004.png")])
    taken("dotted-beside", tars(members=pair("photo") + [("photo.v2.cls", b"1"), ("photo.v2.png", picture())]), 5,
          [("no-sample", 2, "1 .cls, 1 .png", "/photo.v2.cls")])
    taken("masks", tars(members=[*pair("m"), ("m.seg.png", picture()), ("m.txt", b"x"), ("README", b"x"), ("notes.md", b"x")]), 5,
          [("other-member", 4, "1 .png, 1 .txt, 1 other, 1 .md", "/m.seg.png")])
    taken("second-image", tars(members=[*pair("m"), ("m.jpg", picture())]), 5, [("other-member", 1, "1 .png", "/m.png")])
    taken("other-labels", tars(members=[*pair("n"), ("n.json", b'{"caption": "x"}'), *pair("m"), ("m.json", b'{"label": 7}'), *pair("o"), ("o.json", b"{no JSON")]), 7,
          [("other-member", 3, "3 .json", "/n.json"), ("other-label", 1, "1 .json", "/train-0.tar/m.json")])
    taken("equal-labels", tars(members=[*pair("m"), ("m.json", b'{"label": %s}' % dict(pair("m"))["m.cls"])]), 5, [("other-member", 1, "1 .json", "/m.json")])
    taken("corrected", tars(members=[("s000.cls", b"1")]), 4, [("replaced", 1, "1 .cls", "/train-0.tar/s000.cls")])
    with open(os.path.join(work, "runs/x/env.json")) as file:
        if json.load(file)["training_data"]["class_images"] != [1, 3]:
            complain("corrected", "the label of s000 is not the later one")
    taken("corrected-both", tars(members=[("./s000.cls", b"1"), ("./s000.png", picture())]), 4, [("replaced", 2, "1 .cls, 1 .png", "/train-0.tar/./s000.cls")])
    taken("mac-members", tars(members=[("__MACOSX/._s000.png", DOUBLE), ("._s000.cls", DOUBLE), ("@eaDir/s000.png", picture())]), 4,
          [("foreign", 3, "1 __MACOSX, 1 ._*, 1 @eaDir", "/train-0.tar/__MACOSX/._s000.png")])
    # labels without names, all of them 0: shards in the folders of parts are no folders of classes
    for root in ("", "train/"):
        name = "one-label-%d" % len(root)
        make(name, {root + "train-0.tar": tar(pair("a") + pair("b")), root.replace("train", "val") + "val-0.tar": tar(pair("v"))})
        code, text = run("train", "fashion_cnn", "--data-path", name, "--device", "cpu", "--dry-run")
        if code != 3 or "has one class, so there is nothing to learn: all labels are the same" not in text:
            complain(name, "exit %d: %s" % (code, text))
    refused("cases", tars(members=[("m.png", picture()), ("m.PNG", picture()), ("m.cls", b"1")]), 3, "has two members .PNG, 'm.png' and 'm.PNG'")


def others():
    taken("mds", mds_set(), 6)
    taken("mds-beside", mds_set(**{"train/shard.00000.mds.1": b"x", "train/stats.csv": b"x", "train/.DS_Store": b"x"}), 6,
          [("foreign", 1, "1 .DS_Store", "/train/.DS_Store"), ("beside", 2, None, None)])
    for name, index in (("empty", b""), ("cut", b'{"version": 2, "sha'), ("cut-later", b'{"version": 2, "shards": [{"colu'), ("other", b"{}")):
        refused("mds-" + name, mds_set(**{"train/index.json": index}), 3, "/train/index.json'")
    lost = mds_set()
    del lost["train/index.json"]
    refused("mds-lost", lost, 3, "/train/index.json' is not there, but MDS shards lie in its folder")
    refused("mds-partly", {**mds("train", 3, listed=2), **mds("val", 1)}, 3, "index.json' lists 2 shards, but not '.*/train/shard.00002.mds'")
    refused("mds-none", {**mds("train", 2, listed=0), **mds("val", 1)}, 3, "index.json' lists no shards")
    taken("idx", idx_set(), 6)
    taken("idx-dots", idx_set("."), 6)
    taken("idx-dots-gz", idx_set(".", ".gz", gzip.compress), 6)
    plain = idx_set()
    taken("idx-both", {**plain, **{name.replace("-idx", ".idx"): data for name, data in plain.items()},
                       **{name + ".gz": gzip.compress(data) for name, data in plain.items()}, "README.md": b"x", "Thumbs.db": b"x"}, 6,
          [("foreign", 1, "1 Thumbs.db", "/Thumbs.db"), ("beside", 1, "1 .md", "/README.md")])
    taken("idx-folders", {name + "/" + name: data for name, data in plain.items()}, 6)
    refused("idx-two", {**plain, "train-images.idx3-ubyte": idx("train", 6, 8, 8)}, 3, "differ, and each could be the images: keep one of them")


def elsewhere():
    """Other formats are named, and the way that the message shows is one that works."""
    for ending, where in (("parquet", "data/train-00000-of-00001"), ("arrow", "train-00000-of-00001"), ("h5", "train/x"), ("rec", "x"), ("mdb", "data/x"), ("npz", "x")):
        for name in (where + "." + ending,):
            refused("foreign", {name: b"PAR1" + bytes(64)}, 3, r"/%s' is .*, which is not read: %s" % (re.escape(name), "scripts/parquet_tars.py makes tars" if ending == "parquet" else "write its images to files"))
            if ending == "parquet":
                refused("foreign", {name: b"PAR1" + bytes(64)}, 3, "which is not read", ("--val-split", "0.1"))
    for files in ({"data/" + name: data for name, data in tars().items()}, {"x/" + name: data for name, data in tfrecords().items()},
                  {"x/y/" + name: data for name, data in mds_set().items()}):
        make("below", files)
        code, text = run("data", "info", "below")
        way = re.search(r"'below' is one folder too high: .*use --data-path '(.*)'", text)
        if code != 3 or not way:
            complain("below", "exit %d: %s" % (code, text))
            continue
        code, text = run("train", "fashion_cnn", "--data-path", way.group(1), "--epochs", "0", "-b", "2", "--towers", "1", "--device", "cpu")
        if code:
            complain("the advice for shards below", "exit %d: %s" % (code, text))
    if shutil.which("unzip") and shutil.which("zip"):
        make("zipped", folder())
        subprocess.run(["zip", "-qr", "set.zip", "train", "val"], cwd=os.path.join(work, "zipped"), check=True)
        for part in ("train", "val"):
            shutil.rmtree(os.path.join(work, "zipped", part))
        code, text = run("data", "info", "zipped")
        if code != 3 or not re.search("set.zip' is a zip archive, which is not read: unpack it", text):
            complain("zipped", text)
    # images beside a foreign file are a data set
    taken("both", {**folder(), "train.zip": b"PK", "metadata.parquet": b"PAR1"}, 4)


folders(), kaggle(), shards(), members(), others(), elsewhere()
sys.exit(wrong > 0)
