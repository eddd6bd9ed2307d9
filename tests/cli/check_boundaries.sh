#!/usr/bin/env bash
# docs/boundaries.md lists every file that compares labels, every statistic of statistics.h and every file that asks what the processor has;
# the functions that it names are where it says. That its tests exist is seen by check_links.sh. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
compare() { # of the folder $1
    python3 - "$1" <<'PYTHON'
import glob, os, re, sys
os.chdir(sys.argv[1])
page = open("docs/boundaries.md", encoding="utf-8").read()
sources = {path: open(path, encoding="utf-8").read() for floor in ("kernels", "nccl_sync", "towers", "inception")
           for path in glob.glob(f"{floor}/**/*.[ch]", recursive=True)}
def table(name):
    """The cells of each row."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    lines = page[page.index(begin):page.index(end)].splitlines()[3:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
def names(cell):
    return re.findall("`([^`]+)`", cell)
def compare(what, listed, found):
    for name in sorted(set(listed) - set(found)): print(f"{what}: {name} is listed, but is none")
    for name in sorted(set(found) - set(listed)): print(f"{what}: {name} is not listed")

calls = {path for path, text in sources.items() if re.search(r"\bclass_match\(&", text) and not path.endswith("/class_match.c")}
compare("labels", [name for row in table("labels") for name in names(row[0])], calls)
asks = {path for path, text in sources.items() if re.search(r"__builtin_cpu_supports|\bgetauxval\(|__get_cpuid|\"cpuid\"", text)}
compare("processor", [name for row in table("processor") for name in names(row[0])], asks)
header = re.sub(r"/\*.*?\*/", "", sources["towers/record/statistics.h"], flags=re.S)
declared = re.findall(r"^(?:\w+ )+\**(\w+)\(", header, re.M)
rows = table("statistics")
compare("statistics", [name for row in rows if row[1] == "`towers/record/statistics.c`" for name in names(row[0])], declared)
own = {path for path, text in sources.items() if re.search(r"\bstudent_(?:tail|quantile)\(", text)}
compare("intervals and p", {"towers/record/statistics.c", "towers/record/statistics.h"}, own)
for row in rows + table("loops"):
    for function in names(row[0]):
        for path in names(row[1]):
            if not re.search(rf"^[\w* ]*\b{function}\(", sources.get(path, ""), re.M): print(f"{path} has no function {function}")
    if "](../tests/" not in row[-1]: print(f"{row[0]} names no test")
PYTHON
}
compare "$source_dir" >found || complain "the page cannot be read"
[[ ! -s found ]] || complain "$(cat found)"

# a page and sources with one mistake of each kind
mkdir -p copy/{docs,kernels,nccl_sync,inception,towers/record}
sed -e '/trained_classes.c/d' -e 's/`tick`/`tock`/' -e 's/`share_estimate`/`share_estimates`/' "$source_dir/docs/boundaries.md" >copy/docs/boundaries.md
for floor in kernels nccl_sync inception towers; do cp -r "$source_dir/$floor" copy/; done
echo 'int f(void) { return __builtin_cpu_supports("avx2"); }' >copy/inception/asks.c
echo 'NODISCARD Status series_kurtosis(const double *x, int64_t count);' >>copy/towers/record/statistics.h
echo 'double g(void) { return student_tail(2, 3); }' >copy/inception/tests.c
compare copy | sort >found
printf '%s\n' "labels: inception/job/trained_classes.c is not listed" "processor: inception/asks.c is not listed" "statistics: share_estimate is not listed" \
    "statistics: series_kurtosis is not listed" "intervals and p: inception/tests.c is not listed" \
    "statistics: share_estimates is listed, but is none" "towers/record/statistics.c has no function share_estimates" "towers/supervisor/supervisor.c has no function tock" |
    sort | cmp -s - found || complain "of a page with mistakes: $(cat found)"
check_end "what is decided in one place is listed, with its tests"
