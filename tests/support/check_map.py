#!/usr/bin/env python3
"""A test of the source tree's map: the allowed includes between rooms, and no circles.

usage: tests/support/check_map.py [SOURCE_FOLDER [BUILD_FOLDER]] | --calls

1. Includes go down the floors only: inception -> towers -> nccl_sync -> kernels.
2. A device's libraries are included by its backend only, and a backend's internal headers by that backend only.
3. Rooms (folders) form no circle of includes and, given a build folder, neither rooms nor files form one of calls: a call is an
   undefined symbol of one object file that another one defines (nm).
4. What has a place of its own stands nowhere else: BANNED says what is called instead; --calls prints it for CONTRIBUTING.md.
5. Every folder has a README.md that names every file in it, with or without its ending.
6. A source file that a comment names is there: by its path, or by its name alone in the floor of the comment or below it.
7. What a door (BRINGS) or a file's own header includes is not included again by those that have it, tests included; headers
   begin with #pragma once.
8. No two structs, unions or enums have the same name, private ones included.
9. Every reader of data says what it used and what it left out (towers/data/listing/inventory.h), and who lists a folder of data asks
   what other programs left behind there (leftovers.h).
10. Which class of one source is which of another is decided by class_match alone (towers/data/classes/class_match.h), in the places of
    MATCHERS; elsewhere nobody compares names of classes.
11. Options change in inception/options/ alone: what settles them calls settle.h, what follows takes const Options.
12. A room has ROOM_FILES sources at most: a reader can look over its README.

Tables of functions (a backend, the kernels of an op) are data: through them a lower room runs what an upper one has.

Every circle is printed as the chain that closes it, then how many rooms there are, how many of them use another one (arrows), and the
largest. Exit status 0: none; 1: at least one; 2: usage.
"""
import collections
import os
import re
import subprocess
import sys

FLOORS = ["kernels", "nccl_sync", "towers", "inception"]
SMALL_ROOMS = ["towers/train", "towers/supervisor", "towers/guard"]  # checked file by file
# Files that call each other: each knot must become smaller, and its line with it.
ROOM_FILES = 48
SOURCES = (".c", ".h", ".cu", ".cuh", ".def")
OPEN = re.compile(r"(?<![\w.>])(?:open|open64|openat|creat|fopen|fopen64|freopen|popen|mkstemp|mkostemp|json_load_file|json_dump_file"
                  r"|archive_(?:read|write)_open_(?:filename|file)|gzopen|std::(?:[io]?fstream))\s*\(")
# The %s of a format for people; usage and help are our own words.
TEXTS = re.compile(r'(?<!\w)(?:f?printf)\((?:[^"();]|\([^"()]*\))*(?:"(?:\\.|[^"\\])*"\s*(?:PRI\w+\s*)?)*?"(?:\\.|[^"\\%]|%[^s"])*%[-0-9.*]*s')
RUN_ROOMS = ("towers/files/", "towers/record/", "towers/store/", "towers/guard/", "towers/replica/", "towers/train/",
             "towers/supervisor/")
BY_PATH = re.compile(r'(?<![\w.>])(?:rename|renameat2?|unlink|unlinkat|mkdir|rmdir|opendir|scandir|l?stat|access|statvfs|nftw|truncate)\s*\(')
TO_STORAGE = re.compile(r"(?<!STORAGE\()(?<![\w.>])(?:f(?:data)?sync|p?writev?|ftruncate|(?:posix_)?fallocate|copy_file_range"
                        r"|sync_file_range|syncfs|flock|lockf|readdir)\s*\(")
TIME = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:NS|US|MS|S|SECONDS|MINUTES)\s*(?:=\s*)?\(?[0-9.]")
# How long something is measured or drawn, how often rows are gathered, the patience with servers of others.
TIMES_ELSEWHERE = {"kernels/base/timeouts.h", "inception/commands/data.c", "inception/commands/profile.c", "inception/job/progress_line.c", "towers/remote/cache_bring.c",
                   "towers/remote/causes.c", "towers/remote/s3.c", "towers/remote/transport.c",
                   "towers/data/listing/index.c", "towers/train/console.c", "towers/train/step_record.c"}
BY_MOST = re.compile(r"\[[^\]\n]*\b(?:TOWERS_MAX|(?:LAUNCH|CONTROL)_RANKS_MAX)\b[^\]\n]*\](?=\s*[;,=)\[])")
# A source that reads its samples itself, and how it says what it used.
READER = re.compile(r"\bread = \w+")
USED = re.compile(r"\b(?:inventory_fill|indexed_describe)\(|\.info = (?:\*info|from->info)")
LISTS = re.compile(r"\b(?:readdir|fts_read)\(")
LISTS_PARTS = "towers/data/sources/tree.c"  # folders by the words of splits.h alone
# Where labels of two sources meet: the parts of folders, of labels files and of shards; weights and the data that they are evaluated on
# or go on to learn; files of class weights; two runs.
MATCHERS = ["towers/data/sources/folder.c", "towers/data/classes/label_file.c", "towers/data/shards/shard_index.c",
            "towers/data/sources/labels.c", "inception/job/trained_classes.c", "inception/job/class_weights.c",
            "inception/report/run_difference.c"]
MATCHES = re.compile(r"\b(?:class_match|class_of_word)\(")
# data_convert.c looks at the order of one source's names.
BY_CLASS = re.compile(r'\bstr(?:n|case|ncase)?cmp\([^;"]*\bclass_names\b[^;"()]*\)')
CLASS_ORDER = ["towers/data/classes/class_match.c", "towers/data/sources/labels.c", "inception/commands/data_convert.c"]
# What holds Options that may change; and an assignment to a field of it, or of a struct that has it.
OPTIONS = re.compile(r"(?<!const )\bOptions (?:\*(?:const )?)?(\w+)\b(?!\()")
COMMAND_ASKED = re.compile(r"[!=]=\s*VERB_|\bVERB_\w+\s*[!=]=|\bcase VERB_|\bverb\s*[!=]=")
JOB_ROOMS = ("inception/job/", "inception/library/", "inception/quality/")
TYPE = re.compile(r"^typedef (?:struct|union|enum) (\w+) \{", re.M)
# Headers that stand for those they include. tests/support/unit.h opens cmocka, which wants others before it.
BRINGS = ["kernels/base/status.h", "kernels/base/clock.h", "kernels/base/open.h", "kernels/base/text.h", "towers/files/files.h", "tests/support/unit.h"]
# Where it may stand (rooms, and files with how often), what the line says that refuses it, and how the page names it and what it is for.
Banned = collections.namedtuple("Banned", "pattern rooms allowed does instead call why")
OFTEN = 1000
BANNED = [
    Banned(re.compile(r"snprintf\([^,;]* \+ "), [""], {"kernels/base/text.c": OFTEN}, "puts a text together with snprintf(at + used, ...)",
           "use a Text (kernels/base/text.h)", "`snprintf(at + used, ...)`", "a `Text` cannot overrun its buffer"),
    # A held directory, the files in it, and the replacement of a closed standard stream have calls of their own.
    Banned(OPEN, [""], {"kernels/base/place.c": 4, "inception/commands/main.c": 1}, "opens a file itself",
           "use kernels/base/open.h or towers/files/files.h", "`open`, `fopen`, `mkstemp`, `json_load_file`, `gzopen` and their like",
           "they never wait at a pipe, and open nothing but regular files"),
    Banned(TEXTS, ["inception/commands/"], {"inception/commands/main.c": OFTEN}, "prints a text as it is", "use text_printf (kernels/base/text.h)",
           "`printf` with `%s`", "names of files and classes come from others"),
    # Of other files than a run's: numbers for a collector, the token of a user, /proc/self.
    Banned(BY_PATH, RUN_ROOMS, {"towers/record/prometheus.c": 3, "towers/replica/launch_secret.c": 2, "towers/files/files.c": 1},
           "calls the system with a name", "use kernels/base/place.h, which stays in a run's directory",
           "`rename`, `unlink`, `mkdir`, `opendir`, `stat` and other calls with a name", "the directory may be renamed or replaced while a run goes on"),
    # Pipes between processes; the handler of a signal; a token of the user and a lock, before there are towers.
    Banned(TO_STORAGE, RUN_ROOMS, {"towers/guard/batch_max.c": 1, "towers/guard/stack.c": 1, "towers/replica/launch_secret.c": 2,
                                   "towers/store/run_dir.c": 4}, "waits for storage unseen", "make the call in STORAGE (kernels/base/progress.h)",
           "`fsync`, `write`, `ftruncate`, `flock`, `readdir` and their like", "who watches the process knows for what it waits"),
    Banned(TIME, [""], dict.fromkeys(TIMES_ELSEWHERE, OFTEN), "has a time of its own", "it stands in kernels/base/timeouts.h",
           "a constant `X_MS`, `X_SECONDS`, ... between parts that watch each other", "it is asserted there which is smaller"),
    Banned(BY_MOST, [""], {"nccl_sync/hosts/control.c": 1}, "sizes an array by the most towers or ranks of any run",
           "allocate as many as this run has", "`[TOWERS_MAX]`, `[LAUNCH_RANKS_MAX]`",
           "4,096 are for options, and not for structs and frames of functions"),
    Banned(re.compile(r"\b(?:pthread_\w*timed\w*|sem_timedwait)\s*\("), [""], {}, "waits by the time of day",
           "use clock_deadline (kernels/base/clock.h)", "`pthread_cond_timedwait`, `sem_timedwait`", "the time of day may be set back"),
    # A checksum and a resizer with the same bits for every processor ask for themselves.
    Banned(re.compile(r"__builtin_cpu_supports|dnnl_get_effective_cpu_isa|\bcpuid\b"), [""],
           dict.fromkeys(["kernels/cpu/isa.c", "towers/files/crc32c.c", "towers/data/images/resize_avx2.c"], OFTEN),
           "asks for the processor's instructions", "kernels use cpu_isa() (kernels/cpu/cpu.h)", "`__builtin_cpu_supports`, `cpuid`",
           "one variable lowers all kernels, so that tests reach those for older processors"),
    Banned(re.compile(r"%[-+ #0-9.*]*ll[diux]"), [""], {}, "prints or reads a long long", "use PRId64 or its like", "`%lld`",
           "numbers of 64 bits are printed as they are"),
    Banned(re.compile(r"\bstrcmp\([^;]*\bbackend\)?->name"), ["nccl_sync/", "towers/", "inception/"], {}, "compares the name of a backend",
           "ask for what it can do (kernels/backend.h)", "`strcmp(backend->name, ...)`", "above the kernels it only counts what a device can do"),
    Banned(COMMAND_ASKED, JOB_ROOMS, {}, "asks for the command's name", "ask what it uses options for (options_use)",
           "`verb == VERB_...`", "a new command says what it uses options for, once"),
]
GUARD = re.compile(r"^#ifndef (\w+)\n#define \1\n", re.M)
GUARDED = "inception/library/towers.h"  # for the compilers of others
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)  # or a string
NAMED = re.compile(r"(?<![\w./<-])(?<![>=] )[\w./-]+\.(?:c|h|cu)(?![\w.(/-])")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
LIBRARY = re.compile(r"^(dnnl|oneapi/dnnl|cuda|cudnn|cublas|nccl)")


def sources(root, floors=FLOORS):
    for floor in floors:
        for folder, _, names in os.walk(os.path.join(root, floor)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def room(path):
    return os.path.dirname(path)


def file_of(path):
    return os.path.splitext(path)[0]


def floor(path):
    return path.split("/")[0]


def unnamed(root):
    """[(folder, [names])] of files that the README.md of their folder does not name; None if there is no such page."""
    found = []
    for floor_name in FLOORS:
        for folder, _, names in os.walk(os.path.join(root, floor_name)):
            names = sorted(set(names) - {"README.md"})
            page = os.path.join(folder, "README.md")
            if not os.path.exists(page):
                found += [(os.path.relpath(folder, root), None)] if names else []
                continue
            with open(page, encoding="utf-8") as text:
                words = set(re.findall(r"[\w.-]*\w", text.read()))
            missing = [name for name in names if name not in words and os.path.splitext(name)[0] not in words]
            if missing:
                found.append((os.path.relpath(folder, root), missing))
    return found


def nameless(root):
    """[(path, name)] of source files that a comment names and that are not there; headers of libraries are."""
    tree = [*FLOORS, "tests"]
    paths = list(sources(root, tree))
    libraries = {name.split("/")[-1] for _, kind, name in includes(root, tree) if kind == "<"}
    lowest = {}
    for path in paths:
        name = os.path.basename(path)
        lowest[name] = min(lowest.get(name, len(tree)), tree.index(floor(path)))
    found = []
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as text:
            comments = [comment for comment in COMMENT.findall(text.read()) if comment[0] == "/"]
        for name in NAMED.findall(" ".join(comments)):
            if "/" in name:
                outside = floor(name) not in tree
            else:
                outside = name in libraries or LIBRARY.match(name)
            if name in paths or outside:
                continue
            if "/" in name or lowest.get(name, len(tree)) > tree.index(floor(path)):
                found.append((path, name))
    return found


def includes(root, floors=FLOORS):
    """[(path, kind, name)] of all include lines; kind is < or the quotation mark."""
    found = []
    for path in sources(root, floors):
        with open(os.path.join(root, path), encoding="utf-8") as text:
            found += [(path, kind, name) for kind, name in INCLUDE.findall(text.read())]
    return found


def repeated(root):
    """[(path, name, door)] of includes of what a door or the own header has brought."""
    lines = collections.defaultdict(list)
    for path, _, name in includes(root, [*FLOORS, "tests"]):
        lines[path].append(name)

    def reached(path, seen):
        for name in lines.get(path, ()):
            if name not in seen:
                seen.add(name)
                reached(name, seen)
        return seen

    found = []
    for path in sorted(lines):
        own = file_of(path) + ".h"
        doors = [door for door in BRINGS if door in reached(path, set())] + [own] * (own != path and own in lines[path])
        found += [(path, name, door) for name in lines[path] for door in doors if name in lines[door] and not name.endswith(".def")]
    return found


def calls(root, build):
    """[(path, path)] of sources whose object files refer to each other."""
    objects, defined, wanted = {}, {}, []
    for folder, _, names in os.walk(build):
        match = re.search(r"CMakeFiles/towers(?:_lib|_cpu|_cuda|_mpi)?\.dir(?:/(.*))?$", folder)
        for name in names if match else ():
            path = os.path.normpath(os.path.join(match.group(1) or "", name[:-2]))
            if name.endswith(".c.o") and os.path.exists(os.path.join(root, path)):  # else it is of a file that is no more
                objects[os.path.join(folder, name)] = path
    if not objects:
        return []
    lines = subprocess.run(["nm", "-g", "-A", *objects], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        path = objects[line.split(":")[0]]
        kind, symbol = line.split()[-2:]
        if kind == "U":
            wanted.append((path, symbol))
        elif kind == "T":
            defined[symbol] = path
    return [(path, defined[symbol]) for path, symbol in wanted if symbol in defined and path != defined[symbol]]


def circles(edges):
    """One chain for each strongly connected group of more than one node: shortest way round from its first node."""
    graph = collections.defaultdict(set)
    for a, b in edges:
        if a != b:
            graph[a].add(b)
    chains, done = [], set()
    for start in sorted(graph):
        if start in done:
            continue
        before, queue = {start: None}, collections.deque([start])
        while queue:  # breadth first, back to where it began
            node = queue.popleft()
            if start in graph[node]:
                chain = [start]
                while node is not None:
                    chain.append(node)
                    node = before[node]
                chains.append(chain[::-1])
                done.update(chain)
                break
            for after in sorted(graph[node]):
                if after not in before:
                    before[after] = node
                    queue.append(after)
    return chains


def knots(edges):
    """The strongly connected groups of files: ["ROOM: FILE FILE"]."""
    graph = collections.defaultdict(set)
    for a, b in edges:
        graph[file_of(a)].add(file_of(b))

    def reached(start):
        seen, left = set(), [start]
        while left:
            for after in graph.get(left.pop(), ()):
                if after not in seen:
                    seen.add(after)
                    left.append(after)
        return seen

    after = {node: reached(node) for node in graph}
    groups = {tuple(sorted(b for b in after[a] if a in after.get(b, ()))) for a in graph if a in after[a]}
    rooms = [sorted({room(node) for node in group}) for group in groups]
    return sorted(f"{' '.join(of)}: {' '.join(map(os.path.basename, group))}" for of, group in zip(rooms, groups))


def options_assigned(path, bare):
    """The Options that a source without comments changes, although only inception/options/ may."""
    if not path.startswith("inception/") or path.startswith("inception/options/"):
        return []
    return [name for name in sorted(set(OPTIONS.findall(bare)))
            if re.search(rf"(?<!\w)(?<!program\.)(?<!program->){name}(?:->|\.)\w+(?:\[[^]]*\])?(?:\s*(?:<<|>>|[-+*/%|&^])?=(?!=)|\+\+|--)"
                         rf"|(?:\+\+|--){name}(?:->|\.)", bare)]


def calls_table():
    """The rows of BANNED, for CONTRIBUTING.md."""
    rows = ["| not | in | but | because |", "|---|---|---|---|"]
    for banned in BANNED:
        rooms = "rooms that write runs" if banned.rooms == RUN_ROOMS else ", ".join(f"`{name}`" for name in banned.rooms if name) or "all rooms"
        rows.append(f"| {banned.call} | {rooms} | {banned.instead} | {banned.why} |")
    return "\n".join(rows)


def main():
    if sys.argv[1:] == ["--calls"]:
        print(calls_table())
        return 0
    if len(sys.argv) > 3:
        print(__doc__.splitlines()[2], file=sys.stderr)
        return 2
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    bad = 0
    edges = []
    types = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as text:
            text = text.read()
            bare = COMMENT.sub("", text)
            for banned in BANNED:
                where = text if "%" in banned.pattern.pattern else bare  # in strings
                if path.startswith(tuple(banned.rooms)) and len(banned.pattern.findall(where)) > banned.allowed.get(path, 0):
                    print(f"{path} {banned.does}: {banned.instead}")
                    bad += 1
            if path.startswith("towers/data/") and READER.search(text) and not USED.search(text):
                print(f"{path} fills no inventory: say what it used and left out (towers/data/listing/inventory.h)")
                bad += 1
            if path.startswith("towers/data/") and path != LISTS_PARTS and LISTS.search(text) and "leftover_of(" not in text:
                print(f"{path} lists a folder: leave out what other programs left behind (towers/data/listing/leftovers.h)")
                bad += 1
            for name in options_assigned(path, bare):
                print(f"{path} assigns to options ({name}): call inception/options/settle.h")
                bad += 1
            for name in TYPE.findall(text):
                if name in types:
                    print(f"{path} has a type {name}, and so has {types[name]}: give one of them another name")
                    bad += 1
                types[name] = path
            if path in MATCHERS and not MATCHES.search(COMMENT.sub("", text)):
                print(f"{path} compares labels of two sources without class_match (towers/data/classes/class_match.h)")
                bad += 1
            if path.endswith(".c") and path not in MATCHERS + CLASS_ORDER and (MATCHES.search(COMMENT.sub("", text)) or BY_CLASS.search(text)):
                print(f"{path} compares classes: call class_match, and name the place in MATCHERS (tests/support/check_map.py)")
                bad += 1
            if path.endswith(".h") and path != GUARDED and GUARD.search(text):
                print(f"{path} has an include guard: use #pragma once")
                bad += 1
    for folder, names in unnamed(root):
        print(f"{folder}/README.md does not name {', '.join(names)}" if names else f"{folder} has no README.md")
        bad += 1
    for path, name in nameless(root):
        print(f"{path} names {name} in a comment, which is not there or in a floor above")
        bad += 1
    for path, name, door in repeated(root):
        print(f"{path} includes {name} again: {door} brings it")
        bad += 1
    for path, kind, name in includes(root):
        backend = next((b for b in ("kernels/cpu/", "kernels/cuda/") if path.startswith(b)), None)
        if kind == "<":
            if LIBRARY.match(name) and not backend and not path.startswith("nccl_sync/comm_nccl"):
                print(f"{path} includes <{name}>: device libraries belong to kernels/cpu, kernels/cuda and comm_nccl")
                bad += 1
            continue
        if floor(name) not in FLOORS:
            continue
        edges.append((path, name))
        if FLOORS.index(floor(name)) > FLOORS.index(floor(path)):
            print(f"{path} includes {name}: {floor(path)} lies below {floor(name)}")
            bad += 1
        inner = next((b for b in ("kernels/cpu/", "kernels/cuda/") if name.startswith(b)), None)
        if inner and inner != backend:
            print(f"{path} includes {name}: inner headers of {inner[:-1]} are its own")
            bad += 1
    kinds = [("includes", edges)]
    if len(sys.argv) > 2:
        kinds.append(("calls", calls(root, sys.argv[2])))
        if not kinds[1][1]:
            print(f"{sys.argv[2]} holds no object files of towers", file=sys.stderr)
            return 2
    count = 0
    for what, pairs in kinds:
        found = circles([(room(a), room(b)) for a, b in pairs])
        for small in SMALL_ROOMS:
            found += circles([(file_of(a), file_of(b)) for a, b in pairs if room(a) == room(b) == small])
        for chain in found:
            print(f"circle of {what}: " + " -> ".join(chain))
            for a, b in zip(chain, chain[1:]):
                place = next((x, y) for x, y in pairs if (room(x), room(y)) == (a, b) or (file_of(x), file_of(y)) == (a, b))
                print(f"    {place[0]} -> {place[1]}")
        count += len(found)
    if len(sys.argv) > 2:
        found = knots(kinds[1][1])
        for knot in found:
            print(f"circle of calls of files: {knot}: move what both need to a file of its own")
        count += len(found)
    files = collections.Counter(map(room, sources(root)))
    for folder, many in sorted(files.items()):
        if many > ROOM_FILES:
            print(f"{folder} has {many} sources: part it, as a room has {ROOM_FILES} at most")
            bad += 1
    arrows = {(room(a), room(b)) for _, pairs in kinds for a, b in pairs if room(a) != room(b)}
    largest = files.most_common(1)[0] if files else ("none", 0)
    print(f"{len(files)} rooms, {len(arrows)} arrows, {count} circles, largest room {largest[0]} ({largest[1]} files)")
    return 1 if bad or count else 0


if __name__ == "__main__":
    sys.exit(main())
