#!/usr/bin/env python3
"""Run the cells of examples/python/notebook.py in a folder of their own, and write them with their outputs as notebook.ipynb beside it.

usage: scripts/pages/notebook.py TOWERS LIBTOWERS [--check]

--check: run them, and compare the cells of notebook.ipynb, which must have the outputs of one run; exit 1 if a cell fails or differs.
Needs the packages of scripts/requirements/notebook.txt: $(scripts/venv.sh notebook) scripts/pages/notebook.py ...
"""
import os
import re
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
PAGE = os.path.join(FOLDER, "notebook.ipynb")


def cells():
    """A cell begins with a line '# %%', one of text with '# %% [markdown]'."""
    with open(os.path.join(FOLDER, "notebook.py"), encoding="utf-8") as file:
        parts = re.split(r"^# %%( \[markdown\])?\n", file.read(), flags=re.M)[1:]
    for markdown, text in zip(parts[::2], parts[1::2]):
        text = text.strip("\n")
        yield nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", text, flags=re.M)) if markdown else nbformat.v4.new_code_cell(text)


def executed(program, library):
    notebook = nbformat.v4.new_notebook(cells=list(cells()), metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})
    os.environ.update(TOWERS_PROGRAM=os.path.abspath(program), TOWERS_LIBRARY=os.path.abspath(library), PYTHONPATH=FOLDER)
    os.environ.pop("TOWERS_RECIPE", None)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()  # the times of this run
        pieces = cell.get("outputs", [])
        joined = []
        for piece in pieces:  # a stream comes in as many pieces as it was written in
            if joined and piece.output_type == "stream" and joined[-1].output_type == "stream" and joined[-1].name == piece.name:
                joined[-1].text += piece.text
            else:
                joined.append(piece)
        if pieces:
            cell.outputs = joined
    notebook.metadata.pop("language_info", None)
    nbformat.validate(notebook)
    return notebook


def check(made):
    page = nbformat.read(PAGE, 4)
    if [(c.cell_type, c.source) for c in page.cells] != [(c.cell_type, c.source) for c in made.cells]:
        sys.exit("notebook: notebook.ipynb has other cells than notebook.py: run scripts/pages/notebook.py")
    for ours, theirs in zip(made.cells, page.cells):
        kinds = [[(o.output_type, o.get("name"), sorted(o.get("data", {}))) for o in cell.get("outputs", [])] for cell in (ours, theirs)]
        if kinds[0] != kinds[1]:
            sys.exit(f"notebook: notebook.ipynb has other outputs: run scripts/pages/notebook.py; {kinds[0]} and {kinds[1]} of\n{ours.source}")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--check"]):
        sys.exit(__doc__)
    try:
        made = executed(sys.argv[1], sys.argv[2])
    except CellExecutionError as error:
        sys.exit(f"notebook: {error}")
    if sys.argv[3:]:
        check(made)
    else:
        nbformat.write(made, PAGE)


if __name__ == "__main__":
    main()
