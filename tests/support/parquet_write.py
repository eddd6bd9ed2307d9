#!/usr/bin/env python3
"""Writes the set of a folder of tars (shards_write.py) as Parquet tables, a table for each tar, in several forms, and tables that are refused.

usage: parquet_write.py TARS FOLDER      with the Python of scripts/venv.sh parquet

hub: images as {bytes, path} and labels as the hub describes them; texts: labels as texts; plain: bytes and numbers, with a table for test whose
labels are -1. empty, noise: a row without an image, or with other bytes; two: two columns of images; unnamed.parquet: of no split.
"""
import json
import os
import sys
import tarfile

import pyarrow
import pyarrow.parquet

tars, folder = sys.argv[1:]
classes = open(os.path.join(tars, "classes.txt"), encoding="utf-8").read().split()
FEATURES = {"image": {"_type": "Image"}, "label": {"names": classes, "_type": "ClassLabel"}}


def rows_of(path):
    members = {}
    with tarfile.open(path) as tar:
        for member in tar:
            key, ending = member.name.split(".")
            members.setdefault(key, {})[ending] = tar.extractfile(member).read()
    return [(key, one["png"], int(one["cls"])) for key, one in members.items()]


def write(path, columns, features=None):
    os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
    table = pyarrow.table(columns)
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, os.path.join(folder, path), row_group_size=20)


def described(rows):
    return [{"bytes": image, "path": key + ".png"} for key, image, _ in rows]


shards = {split: sorted(name for name in os.listdir(tars) if split in name) for split in ("train", "val")}
for split, names in shards.items():
    for number, name in enumerate(names):
        rows = rows_of(os.path.join(tars, name))
        stem = f"{'train' if split == 'train' else 'validation'}-{number:05d}-of-{len(names):05d}.parquet"
        labels = [label for *_, label in rows]
        write(f"hub/data/{stem}", {"label": labels, "image": described(rows), "id": [key for key, *_ in rows]}, FEATURES)
        write(f"texts/{stem}", {"image": described(rows), "label": [classes[label] for label in labels]})
        write(f"plain/{stem}", {"picture": [image for _, image, _ in rows], "label": labels})
pictures = [image for _, image, _ in rows[:5]]
write("plain/test-00000-of-00001.parquet", {"picture": pictures, "label": [0, 1, 2, -1, -1]})
write("empty/train.parquet", {"image": [{"bytes": image if i != 2 else None, "path": str(i)} for i, image in enumerate(pictures)], "label": [0] * 5})
write("noise/train.parquet", {"image": [image if i != 1 else b"text" for i, image in enumerate(pictures)], "label": [0] * 5})
write("two/train.parquet", {"image": pictures, "thumbnail": pictures, "label": [0] * 5})
write("unnamed.parquet", {"image": pictures, "label": [0] * 5})
