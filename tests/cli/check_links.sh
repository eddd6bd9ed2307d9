#!/usr/bin/env bash
# What pages refer to is there: links have a file or a heading as their target, and a file in C the name that its link shows;
# docs/README.md lists every page of docs/, commands of this program have the options that are given to them, other options are in some
# source, and files that are named exist. `towers train` accepts the lines of sh blocks. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python

pages() { # of the folder $1
    python3 - "$1" <<'PYTHON'
import os, re, sys
os.chdir(sys.argv[1])
pages = []
for folder, inner, files in os.walk("."):
    inner[:] = [name for name in inner if not name.startswith((".", "build", "third_party", "runs"))]
    pages += [os.path.normpath(os.path.join(folder, name)) for name in files if name.endswith(".md")]
text = {page: re.sub(r"```.*?```", "", open(page, encoding="utf-8").read(), flags=re.S) for page in pages}

def anchor(heading): # as GitHub makes it
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.replace("`", "").replace("*", "")).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")

anchors = {page: {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text[page], re.M)} for page in pages}
reached = set()
for page in sorted(pages):
    for link in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text[page]) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text[page]):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if page == "docs/README.md":
            reached.add(target)
        if not os.path.exists(target):
            print(f"{page}: {link} is not there")
        elif heading and heading not in anchors.get(target, ()):
            print(f"{page}: {link}: no such heading")
    for name, path in re.findall(r"\[`(\w+)`\]\(([^)\s]+\.[ch])\)", text[page]):
        source = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if os.path.exists(source) and not re.search(rf"\b{name}\b", open(source, encoding="utf-8").read()):
            print(f"{page}: {name} is not in {source}")
# docs/truth.md and docs/boundaries.md say of each test what in it shows the claim: a test of a C program by its name, of a script a text that it has.
def shows(source, shown):
    if source.endswith(".c"):
        return re.search(rf"\b(?:TEST|TEST_WITH|cmocka_unit_test)\({shown}\b", open(source, encoding="utf-8").read())
    return any(shown in line and not line.lstrip().startswith("#") for line in open(source, encoding="utf-8"))

for page in "docs/truth.md", "docs/boundaries.md":
    for link, shown in re.findall(r"\]\(([^)\s]*tests/[^)\s]+)(?: \"([^\"]*)\")?\)", text.get(page, "")):
        source = os.path.normpath(os.path.join("docs", link))
        if os.path.exists(source) and not shown:
            print(f"{page}: {link}: which test or text of it shows this?")
        elif os.path.exists(source) and not shows(source, shown):
            print(f"{page}: {source} has no '{shown}'")
for page in sorted(pages):
    if page.startswith("docs/") and page != "docs/README.md" and page not in reached:
        print(f"docs/README.md does not list {page}")
PYTHON
}

names() { # of the folder $1: options, files and `towers train` lines that the program, manual $2, or the tree does not know
    python3 - "$1" "$2" "$towers" <<'PYTHON'
import os, re, shlex, subprocess, sys
root, manual, program = sys.argv[1:]
OTHERS = "--sync-bn --test-only --logdir --collector --kd-model-name --train-img-sizes".split() # of other programs
options, sources, files = {}, [], set()
for row in re.findall(r"^- `(-[^`]*--[^`]*`.*|--[^`]*`.*)", open(manual).read(), re.M):
    of = re.search(r"Commands: ([^.]*)", row)
    named = row.split("`")[0] + "".join(re.findall(r"Alias(?:es)?: ([^.]*)", row))
    for flag in re.findall(r"--(?:\[no-\])?([\w-]+)", named):
        options.setdefault(flag, set()).update(of[1].split(", ") if of else [""])
commands = {name for of in options.values() for name in of}

def known(flag, command):
    found = options.get(flag[2:]) or options.get(flag[2:].removeprefix("no-")) or ()
    return command in found or "" in found or (not command and found)

pages = []
for folder, inner, names in os.walk(root):
    inner[:] = [name for name in inner if not name.startswith((".", "build", "third_party", "runs"))]
    for name in names:
        path = os.path.join(folder, name)
        files.add(os.path.relpath(path, root))
        if not name.endswith(".md"):
            sources.append(open(path, encoding="utf-8", errors="replace").read())
        elif name != "CHANGELOG.md":
            pages.append(path)
sources = "".join(sources)
for path in sorted(pages):
    page, text = os.path.relpath(path, root), open(path, encoding="utf-8").read()
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S)
    lines = [(kind, line) for kind, block in blocks for line in re.sub(r"\\\n(> )?", "", block).splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S))
    for kind, line in lines + [("", span) for span in spans]:
        for command, rest in re.findall(r"(?:^|[ $/])towers ([\w-]+)((?: [^#;|&]*)?)", line):
            for flag in re.findall(r"(?<= )--[a-z][\w-]*", rest) if command in commands else []:
                if not known(flag, command):
                    print(f"{page}: towers {command} has no option {flag}")
            if kind == "sh" and command == "train":
                data = "folders" if "--val-split" in line else "data"
                line = re.sub(r"--data-path \S+", f"--data-path {data}", re.sub(r"--pretrained \S+ --reset-head", "", rest))
                done = subprocess.run([program, command, *shlex.split(line), "--print-config"], capture_output=True, text=True)
                if done.returncode:
                    print(f"{page}: towers train{rest.rstrip()}: {done.stderr.strip()}")
    for span in spans:
        for flag in re.findall(r"^--[a-z][\w-]*", span):
            if not known(flag, "") and flag not in OTHERS and flag not in sources:
                print(f"{page}: no option {flag}")
        for name in re.findall(r"^(?:cmake|docs|examples|inception|kernels|nccl_sync|scripts|tests|towers)/[\w./-]+\.\w+", span):
            if name not in files and "NAME" not in name:
                print(f"{page}: no file {name}")
PYTHON
}

[[ -z $(pages "$source_dir") ]] || complain "$(pages "$source_dir")"
small_data "$work/data" 1000 50 || exit 77
for class in a b; do
    mkdir -p "folders/$class"
    for k in {0..39}; do { printf 'P5\n32 32\n255\n'; head -c 1024 /dev/urandom; } >"folders/$class/$k.pgm"; done
done
echo 'epochs: 3' >mine.yaml
"$towers" train fashion_cnn --data-path "$work/data" --max-steps 1 --experiment one --quiet >"$out" 2>&1 &&
    "$towers" export runs/one/last.safetensors net.onnx --quiet || complain "no network in a file: $(cat "$out")"
options_listed >"$work/manual"
grep -c . "$work/manual" | grep -qE '^[0-9]{3}$' || complain "options_listed: $(head -3 "$work/manual")"
names "$source_dir" manual >found
[[ ! -s found ]] || complain "$(cat found)"

mkdir -p "$work/docs"
printf '# A\n[b](docs/b.md#some-words) [c](docs/c.md) [d](docs/b.md#none) <img src="no.png"> [`here`](a.c) [`gone`](a.c)\n' >"$work/README.md"
echo 'int here;' >"$work/a.c"
printf '# Some `words`\n[up](../README.md) [web](https://example.org)\n' >"$work/docs/b.md"
printf '# docs\n[t](truth.md)\n' >"$work/docs/README.md"
mkdir -p "$work/tests"
echo 'TEST(is_there)' >"$work/tests/t.c"
printf '# a comment\ncomplain "said"\n' >"$work/tests/t.sh"
printf '# T\n[a](../tests/t.c "is_there") [b](../tests/t.c "is_not") [c](../tests/t.sh "said") [d](../tests/t.sh "a comment") [e](../tests/t.c)\n' >"$work/docs/truth.md"
pages "$work" >"$work/found"
printf '%s\n' "README.md: docs/c.md is not there" "README.md: docs/b.md#none: no such heading" "README.md: no.png is not there" \
    "README.md: gone is not in a.c" "docs/truth.md: tests/t.c has no 'is_not'" "docs/truth.md: tests/t.sh has no 'a comment'" \
    "docs/truth.md: ../tests/t.c: which test or text of it shows this?" "docs/README.md does not list docs/b.md" | cmp - "$work/found" || complain "of a page with bad links: $(cat "$work/found")"

mkdir tree
printf '%s\n' 'See `--lr`, `--rl`, `--no-augment` and `towers/none.c`.' '```sh' 'towers eval RUN --epochs 3   # x' 'towers train fashion_cnn \' \
    '    --plateau-patience 3' '```' >tree/page.md
names tree manual >found
printf '%s\n' "page.md: towers eval has no option --epochs" "page.md: towers train fashion_cnn     --plateau-patience 3: error: --plateau-patience has no effect with \
--sched constant; it applies only to plateau" "page.md: no option --rl" "page.md: no file towers/none.c" | cmp - found || complain "of a page with bad names: $(cat found)"

check_end "all links and names have an end"
