#!/usr/bin/env bash
# The notebook of the package for Python: its cells run, and the committed page has the same ones with their outputs; a cell that fails
# and a page that is older than its cells are noticed. usage: check_notebook.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
build=$(dirname "$towers")
grep -q '^TOWERS_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "SKIPPED: a sanitizer must be in the program that loads the library" >&2; exit 77; }
[[ -e /usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz ]] || { echo "SKIPPED: there is no Fashion-MNIST here" >&2; exit 77; }
python_of notebook
export HOME=$work MPLCONFIGDIR=$work PYTHONDONTWRITEBYTECODE=1

mkdir -p tree/scripts/pages tree/examples
cp "$source_dir/scripts/pages/notebook.py" tree/scripts/pages/
cp -r "$source_dir/examples/python" tree/examples/
page() { "$python" tree/scripts/pages/notebook.py "$towers" "$build/libtowers.so.0" --check; }
page >"$out" 2>"$err" || complain "the notebook: $(tail -n 5 "$err")"
printf '\n# %%%%\nprint(run.steps["none"])\n' >>tree/examples/python/notebook.py
refuses 1 "no row has 'none'; there are: step, " page
cp "$source_dir/examples/python/notebook.py" tree/examples/python/ && printf '\n# %%%%\nprint(1)\n' >>tree/examples/python/notebook.py
refuses 1 "notebook.ipynb has other cells than notebook.py: run scripts/pages/notebook.py" page
cp "$source_dir/examples/python/notebook.py" tree/examples/python/
"$python" - <<'PYTHON'
import json
page = json.load(open("tree/examples/python/notebook.ipynb"))
page["cells"][1]["outputs"] = []
json.dump(page, open("tree/examples/python/notebook.ipynb", "w"))
PYTHON
refuses 1 "notebook.ipynb has other outputs: run scripts/pages/notebook.py" page
check_end "the notebook runs, and is the page that is committed"
