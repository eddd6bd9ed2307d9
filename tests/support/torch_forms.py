#!/usr/bin/env python3
"""A network of 300 tensors in every form in which torch.save writes one, and inside of what trainers save around it: all values are
read back to the bit, by their names, and damaged files are refused by what is wrong with them. The files are written by Python's own
pickle, without PyTorch; where PyTorch is installed, it writes them, too, and reads those written here.

usage: torch_forms.py WEIGHTS_DRIVER FOLDER
"""
import collections
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile

driver, folder = sys.argv[1:]
failures = []

# ---- tensors without PyTorch: what a pickle of one names, and the storages beside it

KINDS = {"F64": ("DoubleStorage", "d"), "F32": ("FloatStorage", "f"), "F16": ("HalfStorage", "e"), "BF16": ("BFloat16Storage", None),
         "I64": ("LongStorage", "q"), "I32": ("IntStorage", "i"), "I16": ("ShortStorage", "h"), "I8": ("CharStorage", "b"),
         "U8": ("ByteStorage", "B"), "BOOL": ("BoolStorage", "?")}  # fmt: skip
stand_ins = {}


def stand_in(module, name):
    """What pickle writes as a global of this name."""
    if (module, name) not in stand_ins:
        made = type(name, (), {"__module__": module, "__qualname__": name})
        stand_ins[module, name] = made
    return stand_ins[module, name]


def packed(dtype, values):
    if isinstance(values, range):  # as many zeros
        return bytes(len(values) * struct.calcsize(KINDS[dtype][1]))
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{KINDS[dtype][1]}", *values)


class Storage:
    def __init__(self, dtype, values):
        self.dtype, self.values = dtype, values


class Tensor:
    """`storage` may be shared; what is read must be `values` in order."""

    def __init__(self, storage, size, stride=None, offset=0, wrap=None, hooks=None):
        self.storage, self.size, self.offset, self.wrap, self.hooks = storage, size, offset, wrap, hooks
        self.stride = stride or contiguous(size)

    def __reduce__(self):
        made = Made(stand_in("torch._utils", "_rebuild_tensor_v2"),
                    (self.storage, self.offset, self.size, self.stride, False, self.hooks or collections.OrderedDict()))  # fmt: skip
        if self.wrap == "parameter":
            return stand_in("torch._utils", "_rebuild_parameter"), (made, True, collections.OrderedDict())
        if self.wrap == "state":
            return stand_in("torch._utils", "_rebuild_parameter_with_state"), (made, True, collections.OrderedDict(), {"tag": 1})
        return made.__reduce__()

    def values(self):
        places = [self.offset]
        for size, stride in zip(self.size, self.stride):
            places = [place + i * stride for place in places for i in range(size)]
        return packed(self.storage.dtype, [self.storage.values[place] for place in places])


class Made:
    def __init__(self, function, args):
        self.parts = function, args

    def __reduce__(self):
        return self.parts


def contiguous(size):
    stride = []
    for n in reversed(size):
        stride.insert(0, stride[0] * last if stride else 1)
        last = n
    return tuple(stride)


class Pickler(pickle._Pickler):
    """The pure Python one, which takes stand-ins as globals. Each storage has a key; `sequence`: with the sixth part of an old file."""

    def __init__(self, to, protocol, keys, sequence):
        super().__init__(to, protocol)
        self.keys, self.sequence = keys, sequence

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        key = self.keys.setdefault(id(thing), (str(len(self.keys)), thing))[0]
        name = KINDS[thing.dtype][0]
        if self.proto == 0:  # the text of the tuple
            return Text(f"('storage', <class 'torch.{name}'>, '{key}', 'cpu', {len(thing.values)}{', None' if self.sequence else ''})")
        return ("storage", stand_in("torch", name), key, "cpu", len(thing.values)) + ((None,) if self.sequence else ())

    def save_global(self, thing, name=None):
        if (thing.__module__, thing.__name__) not in stand_ins:
            return super().save_global(thing, name)
        if self.proto >= 4:
            self.save(thing.__module__)
            self.save(thing.__name__)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{thing.__module__}\n{thing.__name__}\n".encode())
        self.memoize(thing)

    dispatch = dict(pickle._Pickler.dispatch)
    dispatch[type] = lambda self, thing: self.save_global(thing)


class Text:
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


def pickled(thing, protocol, keys, sequence=False):
    to = io.BytesIO()
    Pickler(to, protocol, keys, sequence).dump(thing)
    return to.getvalue()


# ---- files

def archive(path, thing, protocol=2, compression=zipfile.ZIP_STORED):
    keys = {}
    data = pickled(thing, protocol, keys)
    with zipfile.ZipFile(path, "w", compression) as file:
        entries = [("data.pkl", data), ("byteorder", b"little"), ("version", b"3\n")]
        for name, content in entries + [("data/" + key, packed(s.dtype, s.values)) for key, s in keys.values()]:
            file.writestr(zipfile.ZipInfo("archive/" + name), content, compression)


def sequence(path, thing, protocol=2):
    keys = {}
    parts = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4}}]
    data = [pickled(part, protocol, {}) for part in parts] + [pickled(thing, protocol, keys, sequence=True)]
    data.append(pickled([key for key, _ in keys.values()], protocol, {}))
    storages = [struct.pack("<q", len(s.values)) + packed(s.dtype, s.values) for _, s in keys.values()]
    with open(path, "wb") as file:
        file.write(b"".join(data + storages))


def safetensors(path, tensors):
    head, data = {}, b""
    for name, (dtype, size, values) in tensors.items():
        head[name] = {"dtype": dtype, "shape": list(size), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    head.pop("__metadata__", None)
    return {name: (info["dtype"], tuple(info["shape"]), data[slice(*info["data_offsets"])]) for name, info in head.items()}


# ---- the network

def layers():
    """(name, size, type) of each tensor, in the order of a state dict."""
    for block in range(50):
        yield f"block{block}.conv.weight", (block % 4 + 1, 3, 2, 2), "F32"
        for part in ("weight", "bias", "running_mean", "running_var"):
            yield f"block{block}.bn.{part}", (block % 4 + 1,), "F32"
        yield f"block{block}.bn.num_batches_tracked", (), "I64"


names = [name for name, _, _ in layers()]
assert len(names) == 300
with open(os.path.join(folder, "names"), "w") as file:
    file.write("\n".join(name for name in names if not name.endswith("tracked")))


def count_of(size):
    count = 1
    for n in size:
        count *= n
    return count


def network(seed=0, dtype=None, **wrap):
    rng = random.Random(seed)
    made = collections.OrderedDict()
    for name, size, kind in layers():
        kind = dtype if dtype and kind == "F32" else kind
        made[name] = Tensor(Storage(kind, [rng.randint(-100, 100) for _ in range(count_of(size))]), size, **wrap)
    return made


def shared(seed=0):
    """Every f32 tensor a plain range of one storage, as after a flattening of all parameters."""
    rng, made, at = random.Random(seed), collections.OrderedDict(), 7
    sizes = [(name, size) for name, size, kind in layers() if kind == "F32"]
    storage = Storage("F32", [rng.randint(-100, 100) for _ in range(at + sum(count_of(size) for _, size in sizes))])
    for name, size in sizes:
        made[name] = Tensor(storage, size, offset=at)
        at += count_of(size)
    return made


def strided(seed=0):
    """Channels last, vectors backward in memory of another's, every other number, and transposed ones."""
    made = network(seed)
    for name, t in made.items():
        if len(t.size) == 4:
            n, c, h, w = t.size
            t.stride = (c * h * w, 1, w * c, c)
        elif t.size:
            t.storage = Storage("F32", [v for value in t.storage.values for v in (-1, value)])
            t.stride, t.offset = (2,), 1
    return made


def expanded(seed=0):
    made = network(seed)
    for t in made.values():
        t.storage = Storage(t.storage.dtype, t.storage.values[:1])
        t.stride = tuple(0 for _ in t.size)
    return made


def under(prefix, items):
    return collections.OrderedDict((prefix + name, t) for name, t in items.items())


# ---- the comparison

def taken(path, key=None):
    to = path + ".out"
    if os.path.exists(to):
        os.remove(to)
    command = [driver, "take", path, os.path.join(folder, "names"), to] + ([key] if key else [])
    run = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return run.returncode, run.stdout + run.stderr, to


def equal(what, path, wanted, key=None, said=""):
    code, text, to = taken(path, key)
    if code:
        return failures.append(f"{what}: {code} {text}")
    found = read_safetensors(to)
    for name, t in wanted.items():
        one = t if isinstance(t, tuple) else (t.storage.dtype, tuple(t.size), t.values())
        if found.get(name) != one:
            return failures.append(f"{what}: {name} is {found.get(name)}, not {one}")
    if set(found) != set(wanted):
        failures.append(f"{what}: other tensors: {set(found) ^ set(wanted)}")
    if said not in text or (not said and text.strip()):
        failures.append(f"{what}: wanted '{said}', said '{text}'")


def refused(what, path, said, key=None):
    code, text, _ = taken(path, key)
    if code == 0 or said not in text:
        failures.append(f"{what}: {code}, wanted '{said}', said '{text}'")


def form(what, thing, wanted, write=archive, key=None, said="", **how):
    path = os.path.join(folder, what + ".pth")
    write(path, thing, **how)
    equal(what, path, wanted, key, said)
    return path


# ---- the network alone
for protocol in range(6):
    form(f"protocol-{protocol}", network(), network(), protocol=protocol)
    form(f"old-protocol-{protocol}", network(), network(), write=sequence, protocol=protocol)
    form(f"shared-protocol-{protocol}", shared(), shared(), protocol=protocol)
for what, made in (("shared", shared), ("strided", strided), ("expanded", expanded)):
    form(what, made(), made())
    form("old-" + what, made(), made(), write=sequence)
for dtype in KINDS:
    made = lambda: network(dtype=dtype)
    if dtype == "U8" or dtype == "BOOL":
        made = lambda: collections.OrderedDict(
            (name, Tensor(Storage(dtype, [abs(v) % (2 if dtype == "BOOL" else 256) for v in t.storage.values]), t.size)) for name, t in network().items())
    form("type-" + dtype, made(), made())
form("parameters", network(wrap="parameter"), network())
form("parameters-with-state", network(wrap="state"), network())
form("hooks", network(hooks=collections.OrderedDict([(0, None), (1, (True, 2.5))])), network())
form("deflated", network(), network(), compression=zipfile.ZIP_DEFLATED)
form("plain-dict", dict(network()), network())

# ---- under prefixes, in both formats
more = {"criterion.weight": Tensor(Storage("F32", [1, 2, 3]), (3,)), "n_averaged": Tensor(Storage("I64", [4]), ())}
for prefix in ("module.", "_orig_mod.", "model.", "backbone.", "net.", "my_attribute.", "_orig_mod.module.model.", "0."):
    said = f"takes the weights under {prefix[:-1]}"
    form("under-" + prefix + "pth", under(prefix, network()), network(), said=said)
    form("beside-" + prefix + "pth", dict(under(prefix, network()), **more), network(), said=said + "; leaves 2 tensors: criterion.weight, n_averaged")
    flat = {name: (t.storage.dtype, tuple(t.size), t.values()) for name, t in dict(under(prefix, network()), **more).items()}
    path = os.path.join(folder, "beside-" + prefix + "safetensors")
    safetensors(path, flat)
    equal(path, path, network(), said=said + "; leaves 2 tensors: criterion.weight, n_averaged")

# ---- in checkpoints
state = {"state": {i: {"step": Tensor(Storage("F32", [9]), ()), "exp_avg": network(7)[name]} for i, name in enumerate(names[:20])},
         "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": list(range(300))}]}  # fmt: skip
for key in ("state_dict", "model", "model_ema", "state_dict_ema", "net", "weights", "params", "ema", "network", "any name"):
    form("in-" + key, {"epoch": 3, "optimizer": state, key: network(), "best": 1.5}, network(), said=f"under {key}; leaves 40 tensors: optimizer.state.0.step")
form("lightning", {"state_dict": dict(under("model.", network()), **more), "optimizer_states": [state]}, network(),
     said="under state_dict.model; leaves 42 tensors")  # fmt: skip
form("lightning-nested", {"state_dict": under("student._orig_mod.module.", network())}, network(), said="under state_dict.student._orig_mod.module")
form("same-twice", (lambda sd: {"state_dict": sd, "best": sd})(network()), network(), said="under state_dict")
form("dict-in-dict", dict(network(), optimizer=state), network(), said="with the names as they are; leaves 40 tensors: optimizer.state.0.step")
form("list", [1, {"weights": network()}], network(), said="under (item 1).weights")
orders = (("state_dict", "state_dict_ema"), ("model", "model_ema"), ("model", "state_dict"), ("state_dict", "model_ema"), ("other", "model"))
for last, first in orders:
    for pair in ((last, first), (first, last)):
        values = {first: network(2), last: network(1)}
        what = "+".join(pair)
        thing = {name: values[name] for name in pair}
        path = form(what, thing, network(2), said=f"under {first}, which come first in timm's order; --weights-key takes those under {last};")
        equal(what + " by key", path, network(1), key=last, said=f"takes the weights under {last};")
        flat = {name: (t.storage.dtype, tuple(t.size), t.values()) for part in pair for name, t in under(part + ".", values[part]).items()}
        path = os.path.join(folder, what + ".safetensors")
        safetensors(path, flat)
        equal(what + " as safetensors", path, network(2), said=f"under {first}, which come first in timm's order")
        equal(what + " as safetensors by key", path, network(1), key=last, said=f"takes the weights under {last};")
path = form("lightning-ema", {"state_dict": dict(under("model.", network(1)), **under("model_ema.module.", network(2)))}, network(2),
            said="under state_dict.model_ema.module, which")  # fmt: skip
equal("lightning-ema by key", path, network(1), key="state_dict.model", said="under state_dict.model;")
for pair in (("student", "teacher"), ("ema", "net"), ("a", "b")):
    path = os.path.join(folder, "two.pth")
    archive(path, {pair[0]: network(1), pair[1]: network(2)})
    refused("two places", path, f"has weights of this network in 2 places, and nothing says which are meant: {pair[0]}, {pair[1]}; choose one with --weights-key")
    equal("one of two", path, network(2), key=pair[1], said=f"under {pair[1]};")
    refused("none of two", path, "has no weights of this network under 'c'", key="c")
for lacking in (names[0], names[150], names[-2]):
    part = network(1)
    part.pop(lacking)
    form("partial-ema", {"state_dict": network(2), "state_dict_ema": part}, network(2), said="takes the weights under state_dict; leaves 299 tensors")

# ---- damaged ones
path = os.path.join(folder, "flipped.pth")
archive(path, network())
whole = open(path, "rb").read()
values = packed("F32", network()["block7.conv.weight"].storage.values)
at = whole.index(values)
for flip, said in ((at + 13, ", of the tensor 'block7.conv.weight': ZIP bad CRC"), (whole.index(b"block49.bn.bias") + 6, "data.pkl: ZIP bad CRC")):
    broken = bytearray(whole)
    broken[flip] ^= 4
    open(path, "wb").write(broken)
    refused("a flipped bit", path, said)
    refused("a flipped bit", path, f"'{path}' is a damaged zip archive")

# torch.serialization.set_crc32_options(False) writes zeros for all checksums: nothing can be compared
unsummed = bytearray(whole)
for mark, place in ((b"PK\x01\x02", 16), (b"PK\x03\x04", 14)):  # in the directory, and before each entry
    position = 0
    while (position := unsummed.find(mark, position)) >= 0:
        unsummed[position + place : position + place + 4] = bytes(4)
        position += 4
path = os.path.join(folder, "without-checksums.pth")
open(path, "wb").write(unsummed)
equal("without checksums", path, network())

# 80 MB of zeros in 80 kB: one storage that is too large, and two that are together
for count, said in ((1, "more than weights in a file of"), (2, "more than those in a file of")):
    path = os.path.join(folder, f"bomb-{count}.pth")
    zeros = [Storage("F32", range((20 << 20) // count)) for _ in range(count)]
    archive(path, {f"w{i}": Tensor(zeros[i], (len(zeros[i].values),)) for i in range(count)}, compression=zipfile.ZIP_DEFLATED)
    refused("a bomb", path, said)
path = os.path.join(folder, "expanded-far.pth")
archive(path, {"w": Tensor(Storage("F32", [1]), (1 << 25,), stride=(0,))})
refused("expanded far", path, "repeats its numbers (expand) too often")
path = os.path.join(folder, "old.tar")
with open(path, "wb") as file:
    file.write(b"sys_info" + bytes(249) + b"ustar  \0" + bytes(2000))
refused("a tar", path, "PyTorch before 0.1.10")

# ---- PyTorch itself
try:
    import torch
except ImportError:
    torch = None
if torch:
    types_of = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}

    def real(items):
        return collections.OrderedDict(
            (name, torch.tensor(t.storage.values, dtype=types_of[t.storage.dtype]).as_strided(t.size, t.stride, t.offset)) for name, t in items.items())  # fmt: skip

    for protocol in range(6):
        for new in (True, False):
            path = os.path.join(folder, f"real-{protocol}-{new}.pth")
            torch.save(real(network()), path, pickle_protocol=protocol, _use_new_zipfile_serialization=new)
            equal(os.path.basename(path), path, network())
    for made in (shared, strided, expanded, lambda: network(dtype="F16"), lambda: network(dtype="BF16"), lambda: network(dtype="F64")):
        path = os.path.join(folder, "real.pth")
        torch.save(real(made()), path)
        equal("real", path, made())
        archive(path, made())
        read = torch.load(path, weights_only=True)
        if any(not torch.equal(read[name], t) for name, t in real(made()).items()):
            failures.append("torch.load reads other values from what is written here")
    parameters = collections.OrderedDict(
        (name, torch.nn.Parameter(t) if t.is_floating_point() else t) for name, t in real(network()).items())  # fmt: skip
    torch.save({"state_dict_ema": parameters, "state_dict": real(network(1))}, path)
    equal("real parameters", path, network(), said="under state_dict_ema, which")
    if hasattr(torch.serialization, "set_crc32_options"):  # since 2.6
        torch.serialization.set_crc32_options(False)
        torch.save(real(network()), path)
        equal("real without checksums", path, network())

for failure in failures[:10]:
    print(failure[:600], file=sys.stderr)
sys.exit(1 if failures else 0)
