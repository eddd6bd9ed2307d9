#!/usr/bin/env bash
# Tables in pages are those that scripts wrote: fill_section.sh replaces the text between markers and nothing else, and the CPU table
# of docs/performance.md is made from docs/results/cpu.json, the ratios of the README are those of docs/data.md; a case that is
# measured again keeps its place. Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
needs_python
check_begin tables "$@"
cd "$work" || exit 1

printf 'above\n<!-- one: begin -->\nold\nolder\n<!-- one: end -->\nbetween\n<!-- two: begin -->\n<!-- two: end -->\nbelow\n' >page
printf 'new\n' | "$source_dir/scripts/fill_section.sh" page one || complain "fill_section: $?"
printf 'a\nb\n' | "$source_dir/scripts/fill_section.sh" page two || complain "fill_section of an empty section: $?"
printf 'above\n<!-- one: begin -->\nnew\n<!-- one: end -->\nbetween\n<!-- two: begin -->\na\nb\n<!-- two: end -->\nbelow\n' >wanted
cmp page wanted || complain "fill_section made: $(cat page)"
printf 'x\n' | "$source_dir/scripts/fill_section.sh" page three 2>err && complain "a section that is not there is filled"
grep -q "page has no section 'three'" err || complain "fill_section says: $(cat err)"
cmp page wanted || complain "a refused page is changed"
for section in "docs/performance.md passes" "docs/performance.md ledger" "docs/recipes.md bf16"; do
    read -r page name <<<"$section"
    cp "$source_dir/$page" copy
    printf 'x\n' | "$source_dir/scripts/fill_section.sh" copy "$name" || complain "$page has no section $name"
done

PYTHONDONTWRITEBYTECODE=1 python3 - "$source_dir" <<'PYTHON' || complain "the table of scripts/bench_cpu.sh"
import json, sys
source = sys.argv[1]
sys.path.insert(0, source + "/scripts")
import bench_cpu
results = json.load(open(source + "/docs/results/cpu.json"))
page = open(source + "/docs/performance.md").read()
begin, end = "<!-- cpu: begin -->\n", "\n<!-- cpu: end -->"
assert page[page.index(begin) + len(begin):page.index(end)] == "\n".join(bench_cpu.tables(results)), "not what cpu.json makes"
readme, lines = open(source + "/README.md").read(), bench_cpu.readme_lines(results)
begin, end = "<!-- speed: begin -->\n", "\n<!-- speed: end -->"
shown = readme[readme.index(begin) + len(begin):readme.index(end)]
assert lines is None or shown == "\n".join(lines), "the table of the README is not what cpu.json makes"
import bench_data
begin, end = "<!-- data: begin -->\n", "\n<!-- data: end -->"
shown = readme[readme.index(begin) + len(begin):readme.index(end)]
assert shown == bench_data.readme_line(open(source + "/docs/data.md").read()), "the ratios of the README are not those of docs/data.md"
assert all(case["macs"] for case in results["cases"].values()), "a case without its multiply-adds: GFLOP/s would be 0"
names = list(bench_cpu.cases_make(2, 0))
found = bench_cpu.in_order({name: 0 for name in reversed(names)}, 2)
assert list(found) == names, found
PYTHON

check_end "tables are what scripts wrote"
