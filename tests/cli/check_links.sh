#!/usr/bin/env bash
# Every link in a page of this project to a file or a heading has a target, and docs/README.md lists every page of docs/.
# Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
needs_python
check_begin links "$@"

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
    for link in re.findall(r"\]\(([^)\s]+)\)", text[page]) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text[page]):
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
for page in sorted(pages):
    if page.startswith("docs/") and page != "docs/README.md" and page not in reached:
        print(f"docs/README.md does not list {page}")
PYTHON
}

[[ -z $(pages "$source_dir") ]] || complain "$(pages "$source_dir")"

mkdir -p "$work/docs"
printf '# A\n[b](docs/b.md#some-words) [c](docs/c.md) [d](docs/b.md#none) <img src="no.png">\n' >"$work/README.md"
printf '# Some `words`\n[up](../README.md) [web](https://example.org)\n' >"$work/docs/b.md"
printf '# docs\n' >"$work/docs/README.md"
pages "$work" >"$work/found"
printf '%s\n' "README.md: docs/c.md is not there" "README.md: docs/b.md#none: no such heading" "README.md: no.png is not there" \
    "docs/README.md does not list docs/b.md" | cmp - "$work/found" || complain "of a page with bad links: $(cat "$work/found")"

check_end "all links have an end"
