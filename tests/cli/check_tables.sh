#!/usr/bin/env bash
# Tables in pages are those that scripts wrote: fill_section.sh replaces the text between markers and nothing else, the CPU tables of
# docs/results/cpu.md are made from docs/results/cpu-PROCESSOR.json and inference-PROCESSOR.json, those of docs/results/accuracy.md from
# docs/results/accuracy-PROCESSOR.json, the sentences of the README between markers are what scripts make of these rows;
# a case that is measured again keeps its place; the pictures of a report are those that this program would make. The list of the settings that a run keeps is whole. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python

printf 'above\n<!-- one: begin -->\nold\nolder\n<!-- one: end -->\nbetween\n<!-- two: begin -->\n<!-- two: end -->\nbelow\n' >page
printf 'new\n' | "$source_dir/scripts/pages/fill_section.sh" page one || complain "fill_section: $?"
printf 'a\nb\n' | "$source_dir/scripts/pages/fill_section.sh" page two || complain "fill_section of an empty section: $?"
printf 'above\n<!-- one: begin -->\nnew\n<!-- one: end -->\nbetween\n<!-- two: begin -->\na\nb\n<!-- two: end -->\nbelow\n' >wanted
cmp page wanted || complain "fill_section made: $(cat page)"
printf 'x\n' | "$source_dir/scripts/pages/fill_section.sh" page three 2>err && complain "a section that is not there is filled"
grep -q "page has no section 'three'" err || complain "fill_section says: $(cat err)"
cmp page wanted || complain "a refused page is changed"
for section in "docs/results/cpu.md passes" "docs/results/cpu.md ledger" "docs/results/cpu.md wgan" "docs/data.md bench" "docs/recipes.md bf16"; do
    read -r page name <<<"$section"
    cp "$source_dir/$page" copy
    printf 'x\n' | "$source_dir/scripts/pages/fill_section.sh" copy "$name" || complain "$page has no section $name"
done

PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" <<'PYTHON' || complain "the table of scripts/measure/bench_cpu.sh"
import json, re, sys
source = sys.argv[1]
sys.path[:0] = [source + "/scripts/measure", source + "/scripts/pages"]
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
import readme_lines
kinds = re.findall("<!-- inference (on .*): begin -->", page)
assert section(readme, "forward") in [readme_lines.forward_line(page, kind) for kind in kinds], "forward passes: not what rows say"
assert section(readme, "mini") == readme_lines.mini_line(open(source + "/docs/results/mini.md").read()), "mini: not what rows say"
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

python3 "$source_dir/scripts/pages/report_pictures.py" --towers "$towers" --check 2>err || complain "$(cat err)"

# An option of training and of what follows it is kept by a run (run_argument.c) or by its weights too (facts.c), or stands here: as the call's own, or the machine's,
# for it changes no result but in the last bits.
python3 - "$source_dir" "$towers" <<'PYTHON' || complain "the settings of a run that eval, predict, export and libtowers keep"
import json, re, subprocess, sys
own = set("""aux bad-samples batch-size comm-timeout config cpu-affinity data-memory deterministic device features fuse-siblings gpus json max-pixels
    mirror net-timeout pool-behind-conv print-config processes quiet share-storage stall threads towers weights-key weights-table workers""".split())
def listed(file, name):
    text = open(f"{sys.argv[1]}/inception/job/{file}").read()
    return {key.replace("_", "-") for key in re.findall('"([a-z0-9_-]+)"', re.search(name + r"\[\] = \{(.*?)\}", text, re.S)[1])}
of_weights, of_run = listed("facts.c", "settings"), listed("run_argument.c", "kept_keys")
assert not of_weights & of_run, f"a run has these from its weights: {of_weights & of_run}"
kept = of_weights | of_run
both = set()
for option in json.loads(subprocess.run([sys.argv[2], "man", "--json"], stdout=subprocess.PIPE, check=True).stdout)["options"]:
    commands = set(option["commands"])
    if "train" in commands and commands & {"eval", "predict", "export", "generate", "fid"}:
        both.add(option["flag"])
assert len(both) > 40 and not own & kept, (len(both), own & kept)
assert both == own | kept, f"neither kept nor the call's own: {both - own - kept}; listed, but no such option: {(own | kept) - both}"
PYTHON

check_end "tables are what scripts wrote"
