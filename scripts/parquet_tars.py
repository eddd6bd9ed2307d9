#!/usr/bin/env python3
"""Parquet tables with images and labels, as the Hugging Face hub has them (data/train-00000-of-00005.parquet), become tars that towers reads.

usage: scripts/parquet_tars.py FROM... TO [--image COLUMN] [--label COLUMN] [--split WORD]...

FROM are tables, or a folder with them (of the hub: DIR or DIR/data); TO is a new folder. Each table becomes a tar of its name, with the images
byte for byte in the order of the table, and classes.txt has the names of the classes. The images are the column of the hub's feature Image,
else the only one with bytes; the labels that of ClassLabel, else "label" or "labels"; texts are numbered in the order of their names. Of
tables for validation and for test, those for validation are taken; --split (train, validation, test) names what is wanted.

It needs pyarrow (pip install pyarrow), reads a few rows at a time, and gives TO its name when all is written.
"""
import argparse
import io
import json
import os
import re
import shutil
import sys
import tarfile

SPLITS = {"train": "train", "training": "train", "val": "validation", "valid": "validation", "validation": "validation", "dev": "validation",
          "test": "test"}
ENDINGS = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"GIF8", "gif"), (b"BM", "bmp"), (b"II*\0", "tif"), (b"MM\0*", "tif"))
ROWS = 256


def end(text):
    sys.exit(f"parquet_tars.py: {text}")


def split_of(path):
    words = [SPLITS[word] for word in re.split(r"[-_.]", os.path.basename(path).lower()) if word in SPLITS]
    return words[0] if words else end(f"{path}: expected train, validation or test as a word of its name")


def tables_find(sources):
    """The tables, sorted; of a folder those in it or below it, which must lie in one folder."""
    found = []
    for source in sources:
        below = sorted(os.path.join(above, name) for above, _, names in os.walk(source) for name in names if name.endswith(".parquet"))
        folders = sorted({os.path.dirname(path) for path in below})
        if len(folders) > 1:
            end(f"{source} has tables in several folders, which may be several sets: give one of {', '.join(folders)}")
        if os.path.isdir(source) and not below:
            end(f"{source} has no .parquet")
        if not os.path.isdir(source) and not source.endswith(".parquet"):
            end(f"{source}: expected a file whose name ends in .parquet, as the tar gets its name")
        found += below if os.path.isdir(source) else [source]
    names = [os.path.basename(path) for path in found]
    for name in names:
        if names.count(name) > 1:
            end(f"two tables have the name {name}")
    return found


def tables_choose(tables, wanted):
    splits = {split for split in map(split_of, tables)}
    chosen = set(wanted) or (splits - {"test"} if "validation" in splits else splits)
    for split in sorted(chosen - splits):
        end(f"there is no table for {split}; there are {', '.join(sorted(splits))}")
    for split in sorted(splits - chosen):
        print(f"left out: the tables for {split} (--split takes them)", file=sys.stderr)
    return [path for path in tables if split_of(path) in chosen]


def features_of(schema):
    """What the hub says of the columns, in the metadata of the table."""
    try:
        return json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}


def column_choose(given, described, usual, schema, path, what):
    if given:
        return given if given in schema.names else end(f"{path} has no column '{given}'; it has {', '.join(schema.names)}")
    for names in (described, usual):
        names = [name for name in names if name in schema.names]
        if len(names) == 1:
            return names[0]
        if names:
            end(f"{path} has several columns of {what}: give one of {', '.join(names)} with --{what}")
    end(f"{path} has no column that is known to be of {what}; it has {', '.join(schema.names)}: give one with --{what}")


class Table:
    def __init__(self, path, options):
        import pyarrow
        import pyarrow.parquet

        self.path = path
        try:
            self.file = pyarrow.parquet.ParquetFile(path)
        except (OSError, pyarrow.ArrowInvalid) as problem:
            end(f"{path}: {problem}")
        schema, features = self.file.schema_arrow, features_of(self.file.schema_arrow)

        def holds_bytes(kind):
            if pyarrow.types.is_struct(kind):
                return kind.get_field_index("bytes") >= 0
            return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)

        def described(kind):
            return [name for name, about in features.items() if isinstance(about, dict) and about.get("_type") == kind]

        self.image = column_choose(options.image, described("Image"), [field.name for field in schema if holds_bytes(field.type)], schema, path, "image")
        self.label = column_choose(options.label, described("ClassLabel"), ["label", "labels"], schema, path, "label")
        kind = schema.field(self.label).type
        self.texts = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
        if not self.texts and not pyarrow.types.is_integer(kind):
            end(f"{path}: column '{self.label}' has {kind}; expected whole numbers or texts")
        if not holds_bytes(schema.field(self.image).type):
            end(f"{path}: column '{self.image}' has {schema.field(self.image).type}; expected the bytes of images")
        self.names = (features.get(self.label) or {}).get("names")

    def labels(self):
        for batch in self.file.iter_batches(columns=[self.label]):
            yield from batch.column(0).to_pylist()

    def rows(self):
        for batch in self.file.iter_batches(batch_size=ROWS, columns=[self.image, self.label]):
            columns = {name: batch.column(batch.schema.get_field_index(name)) for name in (self.image, self.label)}
            yield from zip(columns[self.image].to_pylist(), columns[self.label].to_pylist())


def ending_of(image):
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "webp"
    return next((ending for magic, ending in ENDINGS if image.startswith(magic)), None)


def label_number(table, label, classes, row):
    if table.texts and label in classes:
        return classes[label]
    if not table.texts and label is not None and 0 <= label and (not classes or label < len(classes)):
        return label
    end(f"{table.path}, row {row}: the label is {label!r}, as of a set without labels; expected " +
        (f"0 to {len(classes) - 1}" if classes else "0 or more"))


def member_add(tar, name, content):
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))


def tar_write(table, classes, folder):
    stem = os.path.basename(table.path)[: -len(".parquet")]
    count = 0
    with tarfile.open(os.path.join(folder, stem + ".tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
        for count, (image, label) in enumerate(table.rows(), 1):
            image = image.get("bytes") if isinstance(image, dict) else image
            ending = ending_of(image) if image else None
            if not ending:
                end(f"{table.path}, row {count - 1}: " + ("the bytes are of no kind of image that is read" if image else "there are no bytes of an image"))
            number = label_number(table, label, classes, count - 1)
            member_add(tar, f"{count - 1:08d}.{ending}", image)
            member_add(tar, f"{count - 1:08d}.cls", str(number).encode())
    print(f"{stem}.tar: {count} images", file=sys.stderr)


def classes_find(tables):
    """Names and their numbers; {} if labels are numbers without names."""
    if any(table.texts for table in tables):
        if not all(table.texts for table in tables):
            end("labels are texts in some tables, and numbers in others")
        names = sorted({label for table in tables for label in table.labels() if label is not None})
    else:
        names = next((table.names for table in tables if table.names), [])
        for table in tables:
            if table.names and table.names != names:
                end(f"{table.path} has other names of classes than {tables[0].path}")
    for name in names:
        if not name or name != name.strip() or "\n" in name:
            end(f"{name!r} is no name of a class that a line of classes.txt may have")
    if names and names[0].startswith("# "):
        end(f"{names[0]!r} would look like a comment in the first line of classes.txt: give this class another name")
    return {name: number for number, name in enumerate(names)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", metavar="FROM")
    parser.add_argument("to", metavar="TO")
    parser.add_argument("--image", metavar="COLUMN")
    parser.add_argument("--label", metavar="COLUMN")
    parser.add_argument("--split", action="append", choices=("train", "validation", "test"), default=[])
    options = parser.parse_args()
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        end("needs pyarrow: pip install pyarrow")
    if os.path.lexists(options.to):
        end(f"{options.to} is there already: name a new folder")
    tables = [Table(path, options) for path in tables_choose(tables_find(options.source), options.split)]
    classes = classes_find(tables)
    made = f"{options.to.rstrip('/')}.part-{os.getpid()}"
    os.makedirs(made)
    try:
        for table in tables:
            tar_write(table, classes, made)
        if classes:
            with open(os.path.join(made, "classes.txt"), "w", encoding="utf-8") as to:
                to.writelines(name + "\n" for name in classes)
        os.rename(made, options.to)
    finally:
        shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    main()
