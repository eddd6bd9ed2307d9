#!/usr/bin/env python3
"""How far a reader has to go in this source tree, in numbers: files on a road, places of one fact, circles, private words.

usage: scripts/check/house.py [--list] [BUILD_FOLDER]

Prints a row for each number, with what it is meant to be at most; --list says what was counted. Circles need the object files of a
build. Exit status 0: no number is above its limit, where it has one; 1: one is; 2: usage. tests/support/check_map.py refuses the same
things one by one.
"""
import collections
import glob
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tests", "support"), os.path.dirname(os.path.abspath(__file__))]
import check_map  # noqa: E402
import roads  # noqa: E402

STRUCT = re.compile(r"^(?:typedef )?struct (\w+) \{\n(.*?)^\}", re.M | re.S)
OWN_LOSS = re.compile(r"(?=.*\bdouble (?:loss|sum)\b)(?=.*\bcount\b)(?=.*\bweight\b)", re.S)  # with its divisors: it is a tower's
LIFE = re.compile(r"\b(?:_Atomic )?int64_t[^;]*\b(?:heartbeat|heard|alive|looked)_ns\b")
ASKS_ISA = re.compile(r"\bcpu_isa\(\)")
ASKS_PROCESSOR = re.compile(r"__builtin_cpu_supports|dnnl_get_effective_cpu_isa|getauxval|\bcpuid\b")
MULTIPLIES = re.compile(r"\bwords_multiply\(|\b_tile_dpbf16ps\(|\btdpbf16ps\b")  # lanes_*.h define the first
LINKS = re.compile(r"^\s*target_link_libraries\((\w+)\s([^#]*?)\)\s*(?:#.*)?$", re.M)
# Words that only this project used in this sense. (?i) where prose is meant, too. None may come back.
WORDS = {
    "stranger, greeted": r"\bstranger_\w|_strangers?\b|\bstrangers?(?:->|\[|\.\w)|\bStrangers?\b|\b[Gg]reeted\b",
    "star (control plane)": r"(?i)\bstars?\b|\bstar_\w+|_star\b",
    "notice (message)": r"\b(?:[Aa]|one|no) notice\b|\bnotices?(?:->|[.\[]\w)|\bnotice_\w+|\w+_notices?\b|\bNOTICE\w*|\w*Notice\w*",
    "census, farewell": r"(?i)census|farewell",
    "card of a host (node info)": r"\b(?:Host|Group)Card\b",
    "parcel, bell, underway": r"(?i)\bparcels?\b|parcel_|(?:->|\*)bell\b|ring_bell|\bunderway\b",
    "sum of the towers (all-reduce)": r"\w*towers_sum\w*",
    "turn (micro-batch)": r"\bTurn \*|\bturn->|\bturn_(?:begin|feed|forward|backward|launch)\b",
    "joined (unfrozen; fused)": r"\bjoined_(?!updates\b)\w+|_joined\b|(?:\.|->|\*)joined\b|\b[Jj]oined (?:ops?|gradient|conv\w*|siblings)\b|\b(?:ops|siblings) are (?:not )?joined",
    "picture (image)": r"(?i)(?<![a-z])pictures?(?![a-z])",
    "vitals (telemetry)": r"(?i)\bvitals?\b|vitals_|_vitals|DeviceVitals",
    "spoilt, tired": r"(?i)\bspoilt\b|spoilt_|\btired\b",
    "several (multi-label)": r"(?:\.|->)several\b|\bseveral_(?!classes\b)\w+|(?<!of)_several\b",
    "launched program, group (node)": r"(?i)launched programs?\b|\bjob_groups?\b|\bgroup_rank\b|leads_group",
    "slot (optimizer state; buffer; contribution)": r"\boptimizer_slot_\w+|OPTIMIZER_SLOTS|\b(?:Batch|Inference)Slot\b|\bfirst_slot\b|shared->slots",
    "share of a tower (local batch)": r"\bShares\b|\bshares_(?:global|of|steps_per_epoch)\b|\bjob_shares\b",
    "prefix (partial sum)": r"\bprefixed\b|\bprefix_(?:in|out)\b",
    "state, stat (running, batch statistics)": r"\b(?:ROLE|ARENA)_STATE?\b|\bgraph_stat(?:e)?\b|\blayout_state\b|\bstate_elements\b|\bema_state\b|\beval_state\b|\bstat_mean\b",
    "columns_dx, positions, stretch, six points (conv)": r"columns_dx|\bPositionsRun\b|stretch_pixels|six_points",
}
WORDS = {name: re.compile(pattern) for name, pattern in WORDS.items()}
NOT_IN_TEXTS = {"picture (image)", "joined (unfrozen; fused)"}  # people's photographs; names of values in graphs
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def texts():
    for path in check_map.sources(ROOT):
        with open(os.path.join(ROOT, path), encoding="utf-8") as text:
            yield path, text.read()


def folders():
    """The folders of the project, without those of tests, and how many files each has; also where there is no git."""
    for top in ("kernels", "nccl_sync", "towers", "inception", "scripts", "docs", "examples", "cmake"):
        for folder, inner, files in os.walk(os.path.join(ROOT, top)):
            inner[:] = [name for name in inner if name != "__pycache__"]
            yield os.path.relpath(folder, ROOT), len(files)


def libraries():
    """[(target, target)] of what CMake links to what, among the project's own."""
    files = glob.glob(os.path.join(ROOT, "CMakeLists.txt")) + sorted(glob.glob(os.path.join(ROOT, "cmake", "*.cmake")))
    text = "".join(open(path, encoding="utf-8").read() for path in files)
    targets = set(re.findall(r"^\s*add_library\((\w+)", text, re.M))
    return [(target, other) for target, others in LINKS.findall(text) for other in re.sub(r"\$<[^>]*>", "", others).split() if other in targets]


def counts(build):
    """[(row, number, limit or None, what was counted)]"""
    rows = []
    for title, (most, room, begin) in roads.ROADS.items():
        files = roads.road(ROOT, room, begin)
        rows.append((f"files to open: {title}", len(files), most, files))
    found = collections.defaultdict(list)
    for path, text in texts():
        bare = check_map.COMMENT.sub("", text)
        if path.startswith("kernels/") and path != "kernels/cpu/isa.c" and ASKS_ISA.search(bare):
            found["isa"].append(path)
        if path.startswith("kernels/") and ASKS_PROCESSOR.search(text):
            found["decides"].append(path)
        if path.startswith("kernels/cpu/") and not os.path.basename(path).startswith("lanes_") and MULTIPLIES.search(bare):
            found["products"].append(path)
        for name, body in STRUCT.findall(bare) if path.startswith(("kernels/gate", "nccl_sync/", "towers/")) else ():
            if OWN_LOSS.match(body):
                found["loss"].append(name)
            elif re.search(r"\bTowerLoss \*?\w+", body):
                found["points"].append(name)
            if LIFE.search(body):
                found["life"].append(name)
        found["times"] += [path] * len(check_map.TIME.findall(bare)) if path != "kernels/base/timeouts.h" else []
        found["options"] += [f"{path}: {name}" for name in check_map.options_assigned(path, bare)]
        found["verbs"] += [path] * len(check_map.COMMAND_ASKED.findall(bare)) if path.startswith(check_map.JOB_ROOMS) else []
        for name, pattern in WORDS.items():
            found[name] += [path] * len(pattern.findall(STRING.sub("", text) if name in NOT_IN_TEXTS else text))
    elsewhere = [path for path in found["times"] if path not in check_map.TIMES_ELSEWHERE]
    links = check_map.knots(libraries())
    rows += [("places that decide the instruction set", len(found["decides"]), 1, found["decides"]),
             ("files of kernels that choose by it", len(found["isa"]), None, found["isa"]),
             ("micro-kernels of matrix products, and AMX's", len(found["products"]), 2, found["products"]),
             ("circles of libraries", len(links), 1, links),
             ("structs with one tower's loss", len(found["loss"]), 2, found["loss"]),
             ("structs that keep or point to it", len(found["points"]), 3, found["points"]),
             ("structs with a sign of life", len(found["life"]), None, found["life"]),
             ("times between parts outside timeouts.h", len(elsewhere), 0, elsewhere),
             ("changes of options after they are settled", len(found["options"]), 0, found["options"]),
             ("questions of the command's name where jobs are made", len(found["verbs"]), 0, found["verbs"])]
    if build:
        circles = check_map.knots(check_map.calls(ROOT, build))
        rows.append(("circles of files by calls", len(circles), 0, circles))
    rows += [(f"word: {name}", len(found[name]), 0, found[name]) for name in WORDS]
    folder, most = max(folders(), key=lambda one: one[1])
    rows.append(("files in a folder at most, without tests", most, check_map.ROOM_FILES + 1, [folder]))  # and its README
    return rows


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--list"]
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__.splitlines()[2], file=sys.stderr)
        return 2
    above = 0
    for row, number, limit, what in counts(arguments[0] if arguments else None):
        above += limit is not None and number > limit
        print(f"{row:52} {number:5}" + (f"  at most {limit}" if limit is not None else "") + ("  ABOVE IT" if limit is not None and number > limit else ""))
        if "--list" in sys.argv:
            for name, times in sorted(collections.Counter(what).items()):
                print(f"    {name}" + (f" ({times})" if times > 1 else ""))
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
