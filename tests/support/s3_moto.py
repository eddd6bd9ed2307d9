#!/usr/bin/env python3
"""moto's server on loopback with the files of a folder in the bucket "pets", put there by boto3, and a user who may read them. From then on it
compares signatures. It prints port, key and secret of the user, then serves until it is ended.

usage: s3_moto.py FOLDER      with the Python of scripts/venv.sh s3
"""
import json
import os
import sys
import threading
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

folder = sys.argv[1]
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Flask greets on it
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
port = server.get_host_and_port()[1]
endpoint = f"http://127.0.0.1:{port}"
common = dict(endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="anybody", aws_secret_access_key="anything")
s3, iam = boto3.client("s3", **common), boto3.client("iam", **common)
s3.create_bucket(Bucket="pets")
for above, _, files in os.walk(folder):
    for file in files:
        path = os.path.join(above, file)
        s3.upload_file(path, "pets", os.path.relpath(path, folder))
iam.create_user(UserName="reader")
allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(allowed))
key = iam.create_access_key(UserName="reader")["AccessKey"]
urllib.request.urlopen(urllib.request.Request(endpoint + "/moto-api/reset-auth", data=b"0", method="POST", headers={"Content-Type": "text/plain"}))
print(port, key["AccessKeyId"], key["SecretAccessKey"], file=answer, flush=True)
threading.Event().wait()
