#!/usr/bin/env bash
# Tables in pages are those that scripts wrote: fill_section.sh replaces the text between markers and nothing else, the CPU tables of
# docs/results/cpu.md are made from docs/results/cpu-PROCESSOR.json and inference-PROCESSOR.json, those of docs/results/accuracy.md from
# docs/results/accuracy-PROCESSOR.json, the ratios of the README are those of a processor, of its forward passes, and of docs/data.md;
# a case that is measured again keeps its place. The list of the settings that a run keeps is whole. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python

printf 'above\n<!-- one: begin -->\nold\nolder\n<!-- one: end -->\nbetween\n<!-- two: begin -->\n<!-- two: end -->\nbelow\n' >page
printf 'new\n' | "$source_dir/scripts/fill_section.sh" page one || complain "fill_section: $?"
printf 'a\nb\n' | "$source_dir/scripts/fill_section.sh" page two || complain "fill_section of an empty section: $?"
printf 'above\n<!-- one: begin -->\nnew\n<!-- one: end -->\nbetween\n<!-- two: begin -->\na\nb\n<!-- two: end -->\nbelow\n' >wanted
cmp page wanted || complain "fill_section made: $(cat page)"
printf 'x\n' | "$source_dir/scripts/fill_section.sh" page three 2>err && complain "a section that is not there is filled"
grep -q "page has no section 'three'" err || complain "fill_section says: $(cat err)"
cmp page wanted || complain "a refused page is changed"
for section in "docs/results/cpu.md passes" "docs/results/cpu.md ledger" "docs/results/cpu.md wgan" "docs/data.md bench" "docs/recipes.md bf16"; do
    read -r page name <<<"$section"
    cp "$source_dir/$page" copy
    printf 'x\n' | "$source_dir/scripts/fill_section.sh" copy "$name" || complain "$page has no section $name"
done

PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" <<'PYTHON' || complain "the table of scripts/bench_cpu.sh"
import json, re, sys
source = sys.argv[1]
sys.path.insert(0, source + "/scripts")
import bench_cpu, bench_inference
page, readme = open(source + "/docs/results/cpu.md").read(), open(source + "/README.md").read()
def section(text, name):
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    return text[text.index(begin) + len(begin):text.index(end)]
kinds = re.findall("<!-- cpu( on .*): begin -->", page)
assert kinds, "no tables of a processor"
made = []
for kind in kinds:
    results = json.load(open(source + "/" + bench_cpu.results_path(kind)))
    assert bench_cpu.kind_of(results) == kind
    assert section(page, "cpu" + kind) == "\n".join(bench_cpu.tables(results)), f"not what the results{kind} make"
    made.append("\n".join(bench_cpu.readme_lines(results) or []))
    assert all(case["macs"] for case in results["cases"].values()), "a case without its multiply-adds: GFLOP/s would be 0"
for kind in re.findall("<!-- inference( on .*): begin -->", page):
    results = json.load(open(source + "/" + bench_cpu.results_path(kind, "inference")))
    assert bench_cpu.kind_of(results) == kind
    assert section(page, "inference" + kind) == "\n".join(bench_inference.tables(results)), f"not what inference{kind} makes"
assert section(readme, "speed") in made, "the README's table is not what the results of a processor make"
forward = re.search(r"Forward passes of `inception_v3` in f32 are ([\d.]+) times as fast", readme)
rows = re.findall(r"^\| towers.* ([\d.]+) \|$", section(page, "inference on AMD EPYC Zen 4").split("\n**")[1], re.M)
assert forward[1] == max(rows, key=float), f"the README's {forward[1]} is not the best of {rows}"
import bench_data
assert section(readme, "data") == bench_data.readme_line(open(source + "/docs/data.md").read()), "the ratios of the README are not those of docs/data.md"
import time_to_accuracy
page = open(source + "/docs/results/accuracy.md").read()
for kind in re.findall("<!-- accuracy( on .*): begin -->", page):
    results = json.load(open(source + "/" + bench_cpu.results_path(kind, "accuracy")))
    assert section(page, "accuracy" + kind) == "\n".join(time_to_accuracy.section(results)), f"not what accuracy{kind} makes"
names = list(bench_cpu.cases_make(2, 0))
found = bench_cpu.in_order({name: 0 for name in reversed(names)}, 2)
assert list(found) == names, found
PYTHON

# An option of training and of what follows it is kept by a run (run_argument.c), or stands here: as the call's own, or the machine's,
# for it changes no result but in the last bits.
python3 - "$source_dir" "$towers" <<'PYTHON' || complain "the settings of a run that eval, predict, export and libtowers keep"
import re, subprocess, sys
own = set("""aux bad-samples batch-size comm-timeout config cpu-affinity data-memory deterministic device features fuse-siblings gpus json max-pixels
    mirror pool-behind-conv print-config processes quiet share-storage stall threads towers weights-table workers""".split())
text = open(sys.argv[1] + "/inception/job/run_argument.c").read()
kept = set(re.findall('"([a-z0-9-]+)"', re.search(r"kept_keys\[\] = \{(.*?)\}", text, re.S)[1]))
both = set()
for line in subprocess.run([sys.argv[2], "man", "--markdown"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
    row = re.match(r"- `(?:-., )?--(?:\[no-\])?([a-z0-9-]+).*Commands: ([a-z, -]+)\.", line)
    commands = set(row[2].split(", ")) if row else set()
    if "train" in commands and commands & {"eval", "predict", "export", "generate", "fid"}:
        both.add(row[1])
assert len(both) > 40 and not own & kept, (len(both), own & kept)
assert both == own | kept, f"neither kept nor the call's own: {both - own - kept}; listed, but no such option: {(own | kept) - both}"
PYTHON

check_end "tables are what scripts wrote"
