#!/usr/bin/env python3
"""Empty the code of other GPUs in a CUDA library, which compresses to nothing then: of NCCL's 250 MB a GPU needs 30.

usage: blank_fatbin.py LIBRARY OUT ARCHITECTURE      e.g. 90; prints the bytes of code that are left

Code lies in containers of entries, each with its kind (1: PTX, 2: a cubin), sizes and architecture; the entries stay, with zeros as their
content, so that nothing moves. The runtime takes the entry of the GPU that it finds and reads no other.
"""
import struct
import sys

MAGIC, CONTAINER, ENTRY = b"\x50\xed\x55\xba", struct.Struct("<4sHHQ"), struct.Struct("<HHIQ12xI")


def blank(data, architecture):
    """Bytes of code that are left."""
    at = left = 0
    while (at := data.find(MAGIC, at)) >= 0:
        _, version, head, size = CONTAINER.unpack_from(data, at)
        entry, end = at + head, at + head + size
        if version != 1 or head != CONTAINER.size or end > len(data):
            at += len(MAGIC)
            continue
        while entry < end:
            _, _, begins, bytes_of, arch = ENTRY.unpack_from(data, entry)
            if begins < ENTRY.size or entry + begins + bytes_of > end:
                sys.exit(f"blank_fatbin: at {entry:#x}: no entry of code, though one was expected")
            if arch == architecture:
                left += bytes_of
            else:
                data[entry + begins : entry + begins + bytes_of] = bytes(bytes_of)
            entry += begins + bytes_of
        at = end
    return left


def main():
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit(__doc__.split("\n\n")[1])
    with open(sys.argv[1], "rb") as file:
        data = bytearray(file.read())
    left = blank(data, int(sys.argv[3]))
    if not left:
        sys.exit(f"blank_fatbin: {sys.argv[1]} has no code for {sys.argv[3]}")
    with open(sys.argv[2], "wb") as file:
        file.write(data)
    print(left)


if __name__ == "__main__":
    main()
