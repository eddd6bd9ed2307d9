#!/usr/bin/env python3
"""An HTTP server on loopback for downloads that go well or badly. It prints its port, and that of the same over TLS, then serves the files
of a folder.

usage: http_server.py FOLDER LOG [CERTIFICATE]      without a certificate: no TLS

The first part of a path says how: /good/FILE; /norange/FILE without resumption; /cut/FILE breaks off after half of what is left, each time;
/cutonce/FILE the first time only; /redirect/FILE leads to /good/FILE, /loop/FILE to itself, /file/FILE to a file: address;
/missing/FILE answers 404, /busy/FILE 503 twice; /stuck/FILE stops sending after a third; /slow/FILE sends in small pieces,
/trickle/FILE fifty bytes a second;
/long/FILE sends more than the file has; /lies/FILE gives headers that do not fit: a length, a range;
/cutfar/FILE begins anew each time and breaks off after 5 MiB; /other/FILE leads from HTTP to TLS, and back, /around/FILE both ways;
/nohead/FILE answers HEAD with 405; CONNECT is answered 403; /forbidden/FILE answers 403;
/limited/FILE answers 429 once and asks to wait a second, /later/FILE 503 and asks to wait a hundred; /hangup/FILE closes the connection once
without an answer; /tagged/FILE has an ETag and breaks off once; /changed/FILE breaks off once in other bytes of an older ETag; /wrong/FILE sends zeros once, /wrongs/FILE
each time; /reset/FILE has an ETag, and resets the connection in the middle once, /resets/FILE each time; /shorter/FILE has an ETag, breaks
off once and answers 416 to what asks for the rest;
/gated/FILE has an ETag of its time and length, and is sent when LOG.gates/NAME, the last part of FILE, is not there;
/versions/FILE answers HEAD with another version than GET; /none/FILE answers 204; /encoded/FILE says that it is encoded; /vast/FILE that it
has 2^62 bytes. Answers to HEAD are the headers alone.
Every request is a line of LOG: path, range, condition of the range.
"""
import http.server
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

folder, log = sys.argv[1], open(sys.argv[2], "a", buffering=1)
seen = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def headers_end(self, code, length, extra=()):
        self.send_response(code)
        for name, value in [("Content-Length", str(length)), ("Connection", "close"), *extra]:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def do_HEAD(self):
        self.do_GET()

    def do_CONNECT(self):
        print("CONNECT " + self.path, "-", "-", file=log)
        self.headers_end(403, 0)

    def do_GET(self):
        how, name = self.path.lstrip("/").split("/", 1)
        head = self.command == "HEAD"
        path = os.path.join(folder, os.path.normpath("/" + urllib.parse.unquote(name)).lstrip("/"))
        asked = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        print("HEAD " * head + self.path, asked or "-", condition or "-", file=log)
        count = seen[self.command + self.path] = seen.get(self.command + self.path, 0) + 1
        if how == "nohead" and head:
            return self.headers_end(405, 0)
        if how in ("redirect", "loop", "file", "other", "around"):
            there = {"other": other[self.server] + "/good/" + name, "around": other[self.server] + "/other/" + name,
                     "redirect": "/good/" + name, "loop": self.path, "file": "file://" + os.path.join(folder, name)}[how]
            return self.headers_end(302, 0, [("Location", there)])
        if how == "missing" or not os.path.isfile(path):
            return self.headers_end(404, 0)
        if how == "forbidden" or (how == "busy" and count <= 2):
            return self.headers_end(403 if how == "forbidden" else 503, 0)
        if how == "none":
            return self.headers_end(204, 0)
        if how == "vast" and head:
            return self.headers_end(200, 1 << 62)
        if how == "later" or (how == "limited" and count == 1):
            return self.headers_end(503 if how == "later" else 429, 0, [("Retry-After", "100" if how == "later" else "1")])
        if how == "hangup" and count == 1:
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        while how == "gated" and not head and os.path.exists(os.path.join(sys.argv[2] + ".gates", os.path.basename(path))):
            time.sleep(0.02)
        if how == "gated" and not os.path.isfile(path):
            return self.headers_end(404, 0)
        with open(path, "rb") as file:
            content = file.read()
            state = os.fstat(file.fileno())
        size, first = len(content), 0
        tag = {"versions": '"1"' if head else '"2"', "tagged": '"1"', "reset": '"1"', "shorter": '"1"', "changed": '"1"' if count == 1 else '"2"',
               "gated": f'"{state.st_mtime_ns:x}-{size:x}"'}.get(how)
        extra = [("ETag", tag)] if tag else [("Content-Encoding", "gzip")] if how == "encoded" else []
        if (how in ("changed", "wrong") and count == 1 or how == "wrongs") and not name.endswith((".json", ".txt", ".index")):
            content = bytes(size)
        if asked and how not in ("norange", "cutfar") and condition in (None, tag):
            first = int(asked.split("=")[1].rstrip("-"))
            if first >= size or how == "shorter":
                return self.headers_end(416, 0, [("Content-Range", f"bytes */{size}")])
            content = content[first:]
            span = "bytes 0-1/2" if how == "lies" else f"bytes {first}-{size - 1}/{size}"
            self.headers_end(206, len(content), [("Content-Range", span), *extra])
        elif how == "lies":
            self.headers_end(200, -5, [("X-" + "a" * 300, "b" * 5000), ("Content-Encoding", "nonsense")])
        else:
            self.headers_end(200, len(content) + (1000 if how == "long" else 0), extra)
        if head:
            return
        if how in ("cut", "resets") or (how in ("cutonce", "tagged", "changed", "shorter", "reset") and count == 1):
            content = content[: len(content) // 2]
        if how == "resets" or (how == "reset" and count == 1):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.wfile.write(content)
            time.sleep(0.2)  # so that they come before the reset does
            return self.connection.close()
        if how == "cutfar":
            content = content[: 5 << 20]
        if how == "stuck":
            self.wfile.write(content[: len(content) // 3])
            self.wfile.flush()
            time.sleep(30)
            return
        step = {"slow": 20000, "trickle": 1}.get(how, len(content) or 1)
        for at in range(0, len(content), step):
            self.wfile.write(content[at : at + step])
            if how in ("slow", "trickle"):
                time.sleep(0.05 if how == "slow" else 0.02)
        if how == "long":
            self.wfile.write(bytes(1000))


def server_made():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *about: None  # a client that ends early
    return server


plain, safe = server_made(), server_made()
if len(sys.argv) > 3:  # else nobody asks for the second one
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3])
    safe.socket = context.wrap_socket(safe.socket, server_side=True, do_handshake_on_connect=False)
ports = [server.server_address[1] for server in (plain, safe)]
other = {plain: f"https://127.0.0.1:{ports[1]}", safe: f"http://127.0.0.1:{ports[0]}"}
print(*ports, flush=True)
threading.Thread(target=safe.serve_forever, daemon=True).start()
plain.serve_forever()
