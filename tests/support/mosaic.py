#!/usr/bin/env python3
"""Mosaic Streaming and the bucket "pets" of a store, whose endpoint and keys are those of the environment (S3_ENDPOINT_URL).

usage: mosaic.py write FOLDER PREFIX            the samples of a local MDS set, by its MDSWriter into several hashed shards
       mosaic.py read PREFIX TARS CACHE         put the MDS set PREFIX, a local folder, there by boto3, and read it by StreamingDataset: its
                                                images and labels must be those of the tars in a folder, in their order
"""
import io
import os
import sys
import tarfile

import boto3
import numpy
from PIL import Image
from streaming import MDSWriter, StreamingDataset


def write(folder, prefix):
    for part in ("train", "val"):
        samples = StreamingDataset(local=os.path.join(folder, part), batch_size=1)
        with MDSWriter(out=f"s3://pets/{prefix}/{part}", columns={"image": "png", "label": "int"}, hashes=["sha1", "xxh64"], size_limit=1 << 14) as writer:
            for i in range(len(samples)):
                writer.write({"image": samples[i]["image"], "label": samples[i]["label"]})


def samples_of(tars):
    for name in sorted(name for name in os.listdir(tars) if name.endswith(".tar")):
        with tarfile.open(os.path.join(tars, name)) as tar:
            found = {}
            for member in tar:
                key, end = member.name.rsplit(".", 1)
                found.setdefault(key, {})[end] = tar.extractfile(member).read()
        for sample in found.values():
            yield numpy.asarray(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")), int(sample["cls"])


def read(prefix, tars, cache):
    store = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT_URL"])
    for above, _, files in os.walk(prefix):
        for file in files:
            path = os.path.join(above, file)
            store.upload_file(path, "pets", path)
    for part in ("train", "val"):
        samples = StreamingDataset(remote=f"s3://pets/{prefix}/{part}", local=os.path.join(cache, part), batch_size=1)
        wanted = list(samples_of(os.path.join(tars, part)))
        if len(samples) != len(wanted):
            sys.exit(f"{part}: {len(samples)} samples, but {len(wanted)} in tars")
        for i, (pixels, label) in enumerate(wanted):
            sample = samples[i]
            if sample["label"] != label or not numpy.array_equal(numpy.asarray(sample["image"].convert("RGB")), pixels):
                sys.exit(f"{part}: sample {i} differs: label {sample['label']}, expected {label}")
    print(len(wanted), "samples of the last part")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
