#!/usr/bin/env python3
"""A store with the interface of S3 on loopback, which is strict about signatures: it computes AWS's Signature Version 4 of each request from
what has arrived, with the canonical form of the key, and refuses what differs. It compares itself with the signatures that AWS has published, prints
its port, then serves the files of a folder.

usage: S3_ID=... S3_SECRET=... S3_TOKEN=... s3_server.py FOLDER LOG

Each bucket has all files of the folder as its objects, and two folders whose lists never end; a bucket below localhost may be a host. Their names say how they are:
pets is private, of the region us-east-1, and open is for everybody, but not to be listed; token demands the session token, too; cutonce breaks off after half of
each object once; far and farther are in eu-central-1 and say so with 301 and 400; late is of a store whose clock is an hour ahead. Others
are not there. away takes objects, too, in one piece or in parts: it compares digests of bodies, and keeps them below the folder away.

Requests fail as FOLDER/faults says, which is read anew each time: lines "METHOD TEXT KIND COUNT" for the first COUNT requests of METHOD whose
path has TEXT. KIND is an answer, as 403 or 503 (with Retry-After: 1); cut closes the connection after half of the body; hang never
answers; mangle keeps other bytes and says their ETag; blank answers 200 with nothing of what it should say; lost keeps the object, but closes
the connection without an answer. rival: another run claims the place of a run, away/runs/NAME, in the moment before; follower: another process that goes
on with it does; careless: another run does in the moment after, in a store that knows no conditions; vanish: that claim is removed.

Every request is a line of LOG: method, host, path, range, condition of the range, "signed" or "plain".
"""
import base64
import calendar
import hashlib
import hmac
import html
import http.server
import json
import os
import re
import sys
import threading
import time
import urllib.parse

folder, log = sys.argv[1], open(sys.argv[2], "a", buffering=1)
ident, secret, token = (os.environ["S3_" + name] for name in ("ID", "SECRET", "TOKEN"))
PRIVATE, FAR = {"pets", "token", "cutonce", "late", "away"}, {"far": 301, "farther": 400}
ENDLESS = {"endless/": ["a", "b"], "emptier/": []}
MOST_SKEW, HOUR, PAGE = 900, 3600, 3
cut, struck, tags, parts = set(), {}, {}, {}
lock = threading.Lock()


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def encoded(text, plain):
    return urllib.parse.quote(text, safe=plain + "-._~")


def canonical(method, path, query, headers, signed):
    """The canonical request, of which a client can only have the same if it has sent what it has signed."""
    key = encoded(urllib.parse.unquote(path), "/")
    pairs = sorted((encoded(name, ""), encoded(value, "")) for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True))
    lines = [name + ":" + " ".join(headers[name].split()) for name in signed]
    return "\n".join([method, key, "&".join("=".join(pair) for pair in pairs), *lines, "", ";".join(signed), headers["x-amz-content-sha256"]])


def fault(method, path):
    """The kind of the next fault for this request, or None."""
    if not os.path.exists(file := os.path.join(folder, "faults")):
        return None
    with lock, open(file) as lines:
        when = os.fstat(lines.fileno()).st_mtime_ns
        for number, line in enumerate(lines):
            of, text, kind, count = line.split()
            if of == method and text in path and struck.get((when, number), 0) < int(count):
                struck[when, number] = struck.get((when, number), 0) + 1
                return kind
    return None


def refusal(method, target, headers, bucket, now, body, ident=ident, secret=secret):
    """None, or the status of the answer to a request whose signature does not hold."""
    words = headers.get("authorization", "").replace(",", " ").split()
    if words[:1] != ["AWS4-HMAC-SHA256"]:
        return 403
    fields = dict(word.split("=", 1) for word in words[1:])
    scope, signed = fields["Credential"].split("/"), fields["SignedHeaders"].split(";")
    wanted = {"host"} | {name for name in headers if name.startswith("x-amz-")}
    if "x-amz-content-sha256" not in headers or "x-amz-date" not in headers:
        return 400
    if not wanted <= set(signed) <= set(headers) or signed != sorted(signed) or headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
        return 403
    if (bucket == "token" or "x-amz-security-token" in headers) and headers.get("x-amz-security-token") != token:
        return 403
    moment = calendar.timegm(time.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ"))
    if scope[0] != ident or scope[1:] != [headers["x-amz-date"][:8], "us-east-1", "s3", "aws4_request"] or abs(moment - now) > MOST_SKEW:
        return 403
    path, _, query = target.partition("?")
    request = hashlib.sha256(canonical(method, path, query, headers, signed).encode()).hexdigest()
    key = ("AWS4" + secret).encode()
    for part in scope[1:]:
        key = digest(key, part)
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope[1:]), request])
    return None if hmac.compare_digest(digest(key, text).hex(), fields["Signature"]) else 403


def examples_check():
    """The four signed requests of https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html are taken, others are not."""
    examples = [
        ("GET", "/test.txt", b"", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("PUT", "/test$file.text", b"Welcome to Amazon S3.", {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
        ("GET", "/?lifecycle", b"", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("GET", "/?max-keys=2&prefix=J", b"", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ]
    name, key, now = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", calendar.timegm((2013, 5, 24, 0, 0, 0))
    for method, target, body, more, signature in examples:
        headers = {"host": "examplebucket.s3.amazonaws.com", "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
                   "x-amz-date": "20130524T000000Z", **more}
        signed = f"AWS4-HMAC-SHA256 Credential={name}/20130524/us-east-1/s3/aws4_request,SignedHeaders={';'.join(sorted(headers))},Signature="
        for tried, wanted in ((signature, None), (signature[::-1], 403)):
            found = refusal(method, target, {**headers, "authorization": signed + tried}, "", now, body, name, key)
            if found != wanted:
                sys.exit(f"{method} {target} of AWS's examples with the signature {tried}: {found} instead of {wanted}")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string(self.now)

    def headers_end(self, code, length, extra=()):
        self.send_response(code)
        for name, value in [("Content-Length", str(length)), *extra]:
            self.send_header(name, value)
        self.end_headers()

    def do_HEAD(self):
        self.do_GET()

    def do_PUT(self):
        self.do_GET()

    def do_POST(self):
        self.do_GET()

    def do_DELETE(self):
        self.do_GET()

    def body_take(self, headers, kind):
        count = int(headers.get("content-length", 0))
        body = self.rfile.read(count // 2 if kind == "cut" else count)
        while kind == "hang":
            time.sleep(1)
        return body

    def do_GET(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
        host = headers["host"].partition(":")[0]
        bucket, _, key = (host[: -len("localhost")].rstrip("."), "", path) if host.endswith(".localhost") else path.partition("/")
        self.now = time.time() + HOUR * (bucket == "late")
        print(self.command, headers["host"], self.path, headers.get("range", "-"), headers.get("if-range", "-"),
              "signed" if "authorization" in headers else "plain", file=log)
        kind = fault(self.command, self.path)
        body = self.body_take(headers, kind)
        if kind == "cut":
            self.close_connection = True
            return self.connection.shutdown(2)
        if kind and kind.isdigit():
            return self.headers_end(int(kind), 0, [("Retry-After", "1")] if kind == "503" else [])
        if bucket in FAR:
            return self.headers_end(FAR[bucket], 0, [("x-amz-bucket-region", "eu-central-1")])
        code = refusal(self.command, self.path, headers, bucket, self.now, body) if bucket in PRIVATE or "authorization" in headers else None
        if code:
            return self.headers_end(code, 0)
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        if self.command in ("PUT", "POST", "DELETE"):
            return self.take(key, query, headers, body, kind) if bucket == "away" else self.headers_end(405, 0)
        if "list-type" in query and not key and bucket in PRIVATE | {"open"}:
            return self.send_list(bucket, query) if bucket != "open" else self.headers_end(403, 0)
        file = self.file_of(bucket, key)
        if (bucket not in PRIVATE and bucket != "open") or not os.path.isfile(file):
            return self.headers_end(404, 0)
        with open(file, "rb") as opened:
            content = opened.read()
        self.send_object(bucket, headers, content, tags.get(file))

    def file_of(self, bucket, key):
        return os.path.join(folder, "away" if bucket == "away" else "", os.path.normpath("/" + key).lstrip("/"))

    def take(self, key, query, headers, body, kind):
        """An object, a part of one, or the order to begin, join or drop parts."""
        md5 = hashlib.md5(body, usedforsecurity=False)
        if "content-md5" in headers and base64.b64decode(headers["content-md5"]) != md5.digest():
            return self.headers_end(400, 0)
        if kind == "mangle":
            body = bytes([body[0] ^ 1]) + body[1:]
            md5 = hashlib.md5(body, usedforsecurity=False)
        upload = query.get("uploadId")
        if self.command == "POST" and "uploads" in query:
            upload = f"{len(parts)}+a/b=="  # which has to be encoded
            parts[upload] = {}
            return self.send_text("" if kind == "blank" else f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        if upload is not None and upload not in parts:
            return self.headers_end(404, 0)
        if self.command == "DELETE":
            parts.pop(upload)
            return self.headers_end(204, 0)
        if self.command == "PUT" and upload:
            parts[upload][int(query["partNumber"])] = body
            return self.headers_end(200, 0, [("ETag", f'"{md5.hexdigest()}"')])
        tag = f'"{md5.hexdigest()}"'
        if self.command == "POST":
            each = [hashlib.md5(parts[upload][number], usedforsecurity=False) for number in sorted(parts[upload])]
            named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>\"(\w+)\"</ETag>", body.decode())
            if named != [(str(number + 1), one.hexdigest()) for number, one in enumerate(each)]:
                return self.headers_end(400, 0)
            if kind == "blank":
                return self.send_text("<Error><Code>InternalError</Code></Error>")
            tag = f'"{hashlib.md5(b"".join(one.digest() for one in each), usedforsecurity=False).hexdigest()}-{len(each)}"'
            joined = parts.pop(upload)
            body = b"".join(joined[number] for number in sorted(joined))
        file = self.file_of("away", key)
        if kind in ("rival", "follower", "vanish"):
            self.claim(key, kind)
        if headers.get("if-none-match") == "*" and kind != "careless" and os.path.exists(file):
            return self.headers_end(412, 0)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file + ".part", "wb") as made:
            made.write(body)
        tags[file] = tag
        os.replace(file + ".part", file)
        if kind == "careless":
            self.claim(key, "rival")
        if kind == "lost":
            self.close_connection = True
            return self.connection.shutdown(2)
        if self.command == "POST":
            return self.send_text("<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")
        return self.headers_end(200, 0, [("ETag", tag)])

    def claim(self, key, kind):
        file = self.file_of("away", "/".join(key.split("/")[:2]) + "/upload.json")
        os.makedirs(os.path.dirname(file), exist_ok=True)
        tags.pop(file, None)
        if kind == "vanish":
            return os.remove(file)
        record = {"run": "e" * 32}
        if kind == "follower":
            with open(file) as before:
                record = json.load(before)
        with open(file, "w") as claimed:
            json.dump({**record, "start": "f" * 32}, claimed)

    def send_text(self, text):
        content = ("<?xml version='1.0'?>" + text).encode()
        self.headers_end(200, len(content))
        self.wfile.write(content)

    def send_list(self, bucket, query):
        """What is directly below the prefix, three names a page; the token is the last of them, in a form that has to be encoded."""
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "+ /<&")[5:]
        below = self.file_of(bucket, prefix)
        names = sorted(os.listdir(below)) if os.path.isdir(below) and query["delimiter"] == "/" else []
        names = [name for name in names if name > after]
        if prefix in ENDLESS:  # the same page, or an empty one, and always another token
            names, after = ENDLESS[prefix] + [f"{time.monotonic_ns()}"], ""
        kept, text = ENDLESS.get(prefix, names[:PAGE]), "<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        text += "<Prefix>" + html.escape(prefix) + "</Prefix>"
        for name in kept:
            tag, child, end = ("CommonPrefixes", "Prefix", "/") if os.path.isdir(os.path.join(below, name)) else ("Contents", "Key", "")
            text += f"<{tag}><{child}>{html.escape(prefix + name + end)}</{child}></{tag}>"
        more = len(names) > PAGE or prefix in ENDLESS
        text += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        text += f"<NextContinuationToken>{html.escape('+ /<&' + (names if prefix in ENDLESS else kept)[-1])}</NextContinuationToken>" if more else ""
        content = (text + "</ListBucketResult>").encode()
        self.headers_end(200, len(content))
        self.wfile.write(content)

    def send_object(self, bucket, headers, content, joined):
        size, first = len(content), 0
        tag = joined or '"' + hashlib.md5(content, usedforsecurity=False).hexdigest() + '"'
        if "range" in headers and headers.get("if-range") in (None, tag):
            first = int(headers["range"].split("=")[1].rstrip("-"))
        span = [("Content-Range", f"bytes {first}-{size - 1}/{size}")] if first else []
        self.headers_end(206 if first else 200, size - first, [("ETag", tag), *span])
        if self.command == "HEAD":
            return
        if bucket == "cutonce" and self.path not in cut and size > 1000:
            cut.add(self.path)
            self.wfile.write(content[: size // 2])
            self.close_connection = True
            return
        self.wfile.write(content[first:])


examples_check()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
server.handle_error = lambda *about: None  # a client that ends early
print(server.server_address[1], flush=True)
server.serve_forever()
