"""nginx in a folder of its own, on ports that are free: the sockets are made here and handed to it, as it does itself when a new version takes
over from an old one (NGINX=FD;..., http://nginx.org/en/docs/control.html#upgrade), so that no other program can take a port in between.

usage: nginx.py FOLDER CONFIGURATION PORTS
Each @N@ in the configuration becomes the N-th port, and the file is written to FOLDER/nginx.conf. The first line of the output has the ports.
"""
import os
import socket
import sys

folder, source, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sockets = []
for _ in range(count):
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    one.listen(64)
    one.set_inheritable(True)
    sockets.append(one)
with open(source) as file:
    text = file.read()
for i, one in enumerate(sockets):
    text = text.replace("@%d@" % i, str(one.getsockname()[1]))
with open(os.path.join(folder, "nginx.conf"), "w") as file:
    file.write(text)
print(*(one.getsockname()[1] for one in sockets), flush=True)
os.environ["NGINX"] = "".join("%d;" % one.fileno() for one in sockets)
os.execvp("nginx", ["nginx", "-p", folder, "-c", "nginx.conf"])
