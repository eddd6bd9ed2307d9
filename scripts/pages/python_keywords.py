#!/usr/bin/env python3
"""Write the commands of the package for Python, a function each, from the tables of options and commands (`towers man --json`): every
option is a keyword with its type, described once.

usage: scripts/pages/python_keywords.py TOWERS [--check]   (--check: compare only; exit 1 if the file is stale)
"""
import json
import os
import re
import subprocess
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python", "towers", "commands.py")
NAMES = {"eval": "evaluate", "lr-find": "find_lr"}
LEFT_OUT = {"help", "version"}  # about the command line itself
OF_THE_CALL = {"show", "wait", "arguments", "environment"}
TYPES = {"int": "int", "real": "float", "flag": "bool", "list": "Sequence[int]", "text": "Text"}

HEADER = '''"""The commands of the program as functions, a keyword for every option. Written by scripts/pages/python_keywords.py from the program's
own tables; add an option there (inception/options/options.def), not here.

An option is given as a value of its type, a flag as True or False, a list as a list, and is left as the program has it by None.
"""
from __future__ import annotations

import os
from typing import Any, Literal, Mapping, Sequence, Union

from .program import command
from .run import Run

__all__ = {names!r}
VERSION = {version!r}
Text = Union[str, "os.PathLike[str]"]
Number = Union[int, float]

'''

CALL = {
    "train": ("Run", "show: bool = True, wait: bool = True, environment: Mapping[str, str] | None = None"),
    "": ("Any", "show: bool = False, environment: Mapping[str, str] | None = None"),
}


def keyword(flag):
    return flag.replace("-", "_")


def annotation(option):
    if option["type"] == "choice":
        return "Literal[" + ", ".join(json.dumps(name) for name in option["choices"]) + "]"
    kind = TYPES[option["type"]]
    if option["type"] == "text":
        return f"{kind} | Number" if re.search(r"POWER|CODE|\bN\b|limit", option.get("metavar", "")) else kind
    words = re.findall(r"\|([a-z]+)", option.get("metavar", ""))
    return kind + "".join(f' | Literal["{word}"]' for word in words)


def function(name, table):
    options = [o for o in table["options"] if name in o["commands"] and o["flag"] != "json"]
    has_json = name != "train" and any(o["flag"] == "json" and name in o["commands"] for o in table["options"])  # a Run has it
    result, call = CALL.get(name, CALL[""])
    lines = [f"def {NAMES.get(name, name)}(", "    *arguments: Text,"]
    lines += [f"    {keyword(o['flag'])}: {annotation(o)} | None = None," for o in options]
    lines += ["    json: bool | None = None,"] if has_json else []
    lines += [f"    {part}," for part in re.split(r", (?=\w+:)", call)]
    lines += [f") -> {result}:", f'    return command("{name}", locals())', "", ""]
    return lines


def module(table):
    commands = [c for c in table["commands"] if c["name"] not in LEFT_OUT]
    lines = [HEADER.format(version=table["version"], names=[NAMES.get(c["name"], c["name"]) for c in commands])]
    for c in commands:
        lines += function(c["name"], table)
    lines.append("COMMANDS = {  # the words of the command line, and what it does")
    lines += [f"    {NAMES.get(c['name'], c['name'])}: ({c['name']!r}, {c['arguments']!r}, {c['summary']!r})," for c in commands]
    lines += ["}", "", "OPTIONS = {  # what each keyword means"]
    for option in table["options"]:
        values = "; ".join(f"{name}: {about}" for name, about in zip(option.get("choices", ()), option.get("abouts", ())))
        text = ". ".join(filter(None, (option["story"], values, option.get("more"))))
        lines.append(f"    {keyword(option['flag'])!r}: {text!r},")
    lines += ["}", "", "EXITS = {  # why the program ended"]
    lines += [f"    {e['code']}: {e['meaning']!r}," for e in table["exits"]]
    lines.append("}")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    table = json.loads(subprocess.run([sys.argv[1], "man", "--json"], check=True, capture_output=True, text=True).stdout)
    taken = OF_THE_CALL & {keyword(option["flag"]) for option in table["options"]}
    if taken:
        sys.exit(f"python_keywords: an option has the name of an argument of the call: {', '.join(taken)}")
    text = module(table)
    with open(FILE, encoding="utf-8") as file:
        same = file.read() == text
    if same:
        return
    if sys.argv[2:]:
        sys.exit("python_keywords: examples/python/towers/commands.py is not what the options say: run scripts/pages/python_keywords.py TOWERS")
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
