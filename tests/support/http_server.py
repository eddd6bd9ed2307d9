#!/usr/bin/env python3
"""An HTTP server on loopback for downloads that go well or badly. It prints its port, and that of the same over TLS, then serves the files
of a folder.

usage: http_server.py FOLDER LOG [CERTIFICATE]      without a certificate: no TLS

The first part of a path says how: /good/FILE; /norange/FILE without resumption; /cut/FILE breaks off after half of what is left, each time;
/cutonce/FILE the first time only; /redirect/FILE leads to /good/FILE, /loop/FILE to itself, /file/FILE to a file: address;
/missing/FILE answers 404, /busy/FILE 503 twice; /stuck/FILE stops sending after a third; /slow/FILE sends in small pieces;
/long/FILE sends more than the file has; /lies/FILE gives headers that do not fit: a length, a range;
/cutfar/FILE begins anew each time and breaks off after 5 MiB; /other/FILE leads from HTTP to TLS, and back. Every request is a line of LOG.
"""
import http.server
import os
import ssl
import sys
import threading
import time

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

    def do_GET(self):
        how, name = self.path.lstrip("/").split("/", 1)
        asked = self.headers.get("Range")
        print(self.path, asked or "-", file=log)
        count = seen[self.path] = seen.get(self.path, 0) + 1
        if how in ("redirect", "loop", "file", "other"):
            there = {"other": other[self.server] + "/good/" + name,
                     "redirect": "/good/" + name, "loop": self.path, "file": "file://" + os.path.join(folder, name)}[how]
            return self.headers_end(302, 0, [("Location", there)])
        if how == "missing" or (how == "busy" and count <= 2):
            return self.headers_end(404 if how == "missing" else 503, 0)
        with open(os.path.join(folder, os.path.basename(name)), "rb") as file:
            content = file.read()
        size, first = len(content), 0
        if asked and how not in ("norange", "cutfar"):
            first = int(asked.split("=")[1].rstrip("-"))
            if first >= size:
                return self.headers_end(416, 0, [("Content-Range", f"bytes */{size}")])
            content = content[first:]
            span = "bytes 0-1/2" if how == "lies" else f"bytes {first}-{size - 1}/{size}"
            self.headers_end(206, len(content), [("Content-Range", span)])
        elif how == "lies":
            self.headers_end(200, -5, [("X-" + "a" * 300, "b" * 5000), ("Content-Encoding", "nonsense")])
        else:
            self.headers_end(200, len(content) + (1000 if how == "long" else 0))
        if how == "cut" or (how == "cutonce" and count == 1):
            content = content[: len(content) // 2]
        if how == "cutfar":
            content = content[: 5 << 20]
        if how == "stuck":
            self.wfile.write(content[: len(content) // 3])
            self.wfile.flush()
            time.sleep(30)
            return
        step = 20000 if how == "slow" else len(content) or 1
        for at in range(0, len(content), step):
            self.wfile.write(content[at : at + step])
            if how == "slow":
                time.sleep(0.05)
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
