#!/usr/bin/env python3
"""Downloads all objects below a prefix of a bucket by boto3, whose endpoint and keys are those of the environment.

usage: s3_fetch.py BUCKET PREFIX FOLDER      with the Python of scripts/venv.sh s3
"""
import os
import sys

import boto3

bucket, prefix, folder = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/"):
    for item in page["Contents"]:
        path = os.path.join(folder, os.path.relpath(item["Key"], prefix))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        s3.download_file(bucket, item["Key"], path)
