#!/usr/bin/env python3
"""The files that test_torch_file reads (tests/unit/torch/), as torch.save writes them and as an attacker would.

usage: torch_files.py saved FOLDER     the installed PyTorch writes VERSION-*.pth
       torch_files.py hostile FOLDER   bad-*.pth, without PyTorch
       torch_files.py of FILE          FILE.pth: the f32 tensors of a safetensors file, without PyTorch
"""
import argparse
import collections
import json
import math
import os
import struct
import sys
import zipfile


def saved(folder):
    import torch
    from torch import nn

    version = ".".join(torch.__version__.split(".")[:2])
    place = lambda name: os.path.join(folder, f"{version}-{name}.pth")
    model = nn.Sequential(collections.OrderedDict(fc=nn.Linear(3, 2), bn=nn.BatchNorm1d(2)))
    with torch.no_grad():
        model.fc.weight.copy_(torch.arange(6.0).reshape(2, 3))
        model.fc.bias.copy_(torch.tensor([10.0, 11.0]))
    state = model.state_dict()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.save(state, place("plain"))
    torch.save({"model": state, "optimizer": optimizer.state_dict(), "epoch": 3, "args": argparse.Namespace(lr=0.1, x=None)},
               place("checkpoint"))  # fmt: skip
    torch.save({"state_dict": {"module." + k: v for k, v in state.items()}}, place("module"))
    torch.save({"n_averaged": torch.tensor(5), **{"module." + k: v for k, v in state.items()}}, place("average"))
    base = torch.arange(24.0).reshape(4, 6)
    torch.save({"turned": base.t(), "every_other": base[1:3, ::2], "whole": base, "half": base.half(), "brain": base.bfloat16(),
                "double": base.double(), "count": torch.tensor(7), "parameter": nn.Parameter(base[:2]),
                "last": base.permute(1, 0).contiguous().permute(1, 0), "none": None}, place("views"))  # fmt: skip
    torch.save({"e": torch.ones(1).expand(4, 4)}, place("expand"))
    torch.save(model, place("whole_model"))
    torch.save(state, place("old"), _use_new_zipfile_serialization=False)
    torch.jit.script(nn.Linear(1, 1)).save(place("script"))


# ---- pickles by hand

MARK, STOP = b"(", b"."
text = lambda s: b"X" + struct.pack("<I", len(s.encode())) + s.encode()
name = lambda module, function: f"c{module}\n{function}\n".encode()
number = lambda i: b"J" + struct.pack("<i", i)
tuple_of = lambda *items: MARK + b"".join(items) + b"t"


def storage(key="0", elements=4, kind="FloatStorage"):
    return tuple_of(text("storage"), name("torch", kind), text(key), text("cpu"), number(elements)) + b"Q"


def tensor(of=None, offset=0, size=(4,), stride=(1,), marks=b""):
    parts = [of or storage(), number(offset), tuple_of(*map(number, size)), tuple_of(*map(number, stride)), b"\x89"]
    return name("torch._utils", "_rebuild_tensor_v2") + tuple_of(*parts, name("collections", "OrderedDict") + b")R", marks) + b"R"


def state(**items):
    return b"\x80\x02}" + MARK + b"".join(text(k) + v for k, v in items.items()) + b"u" + STOP


FOUR = struct.pack("<4f", 1, 2, 3, 4)


def archive(path, data, storages=(("0", FOUR),), compression=zipfile.ZIP_STORED, more=()):
    with zipfile.ZipFile(path, "w", compression) as file:
        for entry, content in [("data.pkl", data)] + [("data/" + k, v) for k, v in storages] + list(more):
            file.writestr(zipfile.ZipInfo("archive/" + entry), content, compression)


def sequence(folder, what, data, keys=("0",), storages=((4, FOUR),), version=1001, little=True):
    """The form before version 1.6: pickles of a magic number, its version, the machine, the state, the keys; then the storages."""
    pickles = [b"\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019"), number(version), b"}" + text("little_endian") + (b"\x88" if little else b"\x89") + b"s",
               data[2:-1], b"]" + MARK + b"".join(map(text, keys)) + b"e"]  # fmt: skip
    if what == "little_last":  # of a key given twice the last value counts
        pickles[2] = b"}" + MARK + text("little_endian") + b"\x89" + text("little_endian") + b"\x88u"
    with open(os.path.join(folder, f"bad-sequence_{what}.pth"), "wb") as file:
        file.write(b"".join(b"\x80\x02" + p + STOP for p in pickles))
        file.write(b"".join(struct.pack("<q", count) + content for count, content in storages))


def hostile_sequences(folder):
    sequence(folder, "none", state(w=tensor()))  # good, as the next one, which Python 2 would have written
    pair = b"]" + MARK + text("w") + tensor().replace(b"_rebuild_tensor_v2", b"_rebuild_tensor") + b"e"
    sequence(folder, "python2", b"\x80\x02" + name("collections", "OrderedDict") + b"]" + pair + b"a\x85R" + STOP)
    sequence(folder, "little_last", state(w=tensor()))
    sequence(folder, "odd_pair", b"\x80\x02" + name("collections", "OrderedDict") + b"]" + text("w") + b"a\x85R" + STOP)
    sequence(folder, "version", state(w=tensor()), version=1002)
    sequence(folder, "big_endian", state(w=tensor()), little=False)
    sequence(folder, "short", state(w=tensor()), storages=((2, FOUR[:8]),))
    sequence(folder, "cut", state(w=tensor()), storages=((4, FOUR[:12]),))
    sequence(folder, "huge", state(w=tensor()), storages=((2**62, FOUR),))
    sequence(folder, "unnamed", state(w=tensor()), keys=("0", "1"), storages=((4, FOUR),) * 2)
    sequence(folder, "twice", state(w=tensor()), keys=("0", "0"), storages=((4, FOUR),) * 2)
    sequence(folder, "missing", state(w=tensor()), keys=(), storages=())
    viewed = tuple_of(text("storage"), name("torch", "FloatStorage"), text("0"), text("cpu"), number(4), tuple_of(text("1"), number(0), number(4)))
    sequence(folder, "view", state(w=tensor(viewed + b"Q")))


def hostile(folder):
    hostile_sequences(folder)

    def make(what, data, **options):
        archive(os.path.join(folder, f"bad-{what}.pth"), data, **options)

    make("none", state(w=tensor()))  # the only good one
    make("system", b"\x80\x02" + name("posix", "system") + text("true") + b"\x85R" + STOP)
    make("stack_global", b"\x80\x04" + text("posix") + text("system") + b"\x93" + STOP)
    make("protocol", b"\x80\x09}" + STOP)
    make("opcode", b"\x80\x02}\xff" + STOP)
    make("cut", state(w=tensor())[:-40])
    make("no_stop", b"\x80\x02}")
    make("long_text", b"\x80\x02X\xff\xff\xff\xffab" + STOP)
    make("long_text8", b"\x80\x04\x8d" + b"\xff" * 8 + b"ab" + STOP)
    make("empty_stack", b"\x80\x02u" + STOP)
    make("below_mark", b"\x80\x02}" + MARK + b"s" + STOP)
    make("odd_items", b"\x80\x02}" + MARK + text("w") + b"u" + STOP)
    make("open_list", b"\x80\x02}" + MARK + STOP)
    make("memo", b"\x80\x02}j\xff\xff\xff\xff" + STOP)
    make("memo_far", b"\x80\x02}r\xff\xff\xff\xff" + STOP)
    make("build", b"\x80\x02NNb" + STOP)
    make("call", b"\x80\x02N)R" + STOP)
    make("call_storage", b"\x80\x02" + name("torch", "FloatStorage") + b")R" + STOP)
    make("ring", b"\x80\x02}q\x00" + text("state_dict") + b"h\x00s" + STOP)
    make("no_dict", b"\x80\x02]" + STOP)
    make("name", state(**{"a\x1b[31m": tensor()}))
    make("twice", b"\x80\x02}" + MARK + (text("w") + tensor()) * 2 + b"u" + STOP)
    make("outside", state(w=tensor(offset=1)))
    make("far", state(w=tensor(offset=2**31 - 1)))
    make("negative", state(w=tensor(offset=3, stride=(-1,))))
    make("stride", state(w=tensor(size=(2, 2), stride=(2**31 - 1, 2**31 - 1))))
    make("negative_size", state(w=tensor(size=(-4,))))
    make("expand", state(w=tensor(size=(2**30, 2**30, 2**30), stride=(0, 0, 0))))
    make("overflow", state(w=tensor(size=(2**31 - 1,) * 3, stride=(0, 0, 0))))
    make("rank", state(w=tensor(size=(1,) * 9, stride=(1,) * 9)))
    make("rank_differs", state(w=tensor(size=(4, 1))))
    make("negated", state(w=tensor(marks=b"}" + text("neg") + b"\x88s")))
    make("missing", state(w=tensor(storage("9"))))
    make("short", state(w=tensor()), storages=[("0", FOUR[:8])])
    make("long", state(w=tensor()), storages=[("0", FOUR * 2)])
    make("two_types", state(w=tensor(), v=tensor(storage(kind="HalfStorage"))))
    make("kind", state(w=tensor(storage(kind="ComplexFloatStorage"))))
    make("huge", state(w=tensor(storage(elements=2**31 - 1), size=(1,))))
    make("reference", b"\x80\x02}" + text("x") + tuple_of(text("module"), text("y")) + b"Qs" + STOP)
    make("deep", b"\x80\x02" + (b"}" + text("a")) * 300 + tensor() + b"s" * 300 + STOP)
    make("line_number", b"}gx\n" + STOP)
    make("line_long", b"L5\n" + STOP)
    make("line_text", b"Sx'\n" + STOP)
    make("line_storage", b"P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', x)\n" + STOP)
    make("line_view", b"P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 4, ('1', 0, 4))\n" + STOP)
    long = lambda data: b"\x8a" + bytes([len(data)]) + data
    archive(os.path.join(folder, "good-keys.pth"),
            b"\x80\x02}" + MARK + b"N" + tensor() + long(b"\xfd") + tensor() + long(b"\x2c\x01") + tensor() + number(-70000) + tensor() +
            text("a\0b") + tensor() + b"\x89]" + tensor() + b"a" + text("text") + b"}K\x01" + tensor() + b"su" + STOP)  # fmt: skip
    make("big_endian", state(w=tensor()), more=[("byteorder", b"big")])
    make("no_pickle", b"", more=())
    os.remove(os.path.join(folder, "bad-no_pickle.pth"))
    with zipfile.ZipFile(os.path.join(folder, "bad-no_pickle.pth"), "w") as file:
        file.writestr(zipfile.ZipInfo("archive/weights.npy"), b"1")
    whole = open(os.path.join(folder, "bad-none.pth"), "rb").read()
    open(os.path.join(folder, "bad-half.pth"), "wb").write(whole[: len(whole) // 2])
    many = b"".join(text(f"w{i}") + tensor(storage(elements=1024), size=(1200, 1024), stride=(0, 1)) for i in range(16))
    make("views", b"\x80\x02}" + MARK + many + b"u" + STOP, storages=[("0", bytes(4096))])


def of(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    items, storages = {}, []
    for key, info in header.items():
        if info.get("dtype") == "F32":
            values, size = data[slice(*info["data_offsets"])], info["shape"]
            stride = [math.prod(size[i + 1:]) for i in range(len(size))]
            items[key] = tensor(storage(str(len(storages)), len(values) // 4), 0, size, stride)
            storages.append((str(len(storages)), values))
    archive(path + ".pth", state(**items), storages)


if len(sys.argv) != 3 or sys.argv[1] not in ("saved", "hostile", "of"):
    sys.exit(__doc__)
{"saved": saved, "hostile": hostile, "of": of}[sys.argv[1]](sys.argv[2])
