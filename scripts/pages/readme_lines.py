#!/usr/bin/env python3
"""Print a sentence of the README from the rows of docs/results that it stands on; tests/cli/check_tables.sh compares.

usage: scripts/pages/readme_lines.py forward KIND | mini        KIND: "on AMD EPYC Zen 4", as in the headings of docs/results/cpu.md
"""
import re
import sys


def section(text, name):
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    return text[text.index(begin) + len(begin):text.index(end)]


def forward_line(page, kind):
    """How fast forward passes of a batch are; `page` is docs/results/cpu.md."""
    batch = section(page, f"inference {kind}").split("\n**")[1]
    size, commit = re.match(r"inception_v3.*?batch (\d+)\*\*; commit (\S+),", batch).groups()
    ratios = [float(ratio) for ratio in re.findall(r"^\| towers.* ([\d.]+) \|$", batch, re.M)]
    anchor = f"inference {kind}".lower().replace(" ", "-")
    return (f"Forward passes of `inception_v3` in f32 (batch {size}) are {max(ratios)} times as fast as the best of ONNX Runtime, OpenVINO and "
            f"PyTorch {kind.replace('on ', 'on an ', 1)}, at commit {commit} ([rows](docs/results/cpu.md#{anchor})).")


def mini_line(page):
    """What five seeds of the recipe of inception_mini reach; `page` is docs/results/mini.md."""
    reached, seconds = {}, {}
    for name, seeds, first, last in re.findall(r"^\| (nothing else|`[^`]+`) \| ([\d. ]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) to ([\d.]+) \|", page, re.M):
        values = sorted(map(float, seeds.split()))
        reached[name.strip("`")] = f"{values[0]:.1f} to {values[-1]:.1f} %"
        seconds[name.strip("`")] = (float(first) + float(last)) / 2
    return (f"Five seeds of it reach {reached['--amp']} in bf16 and {reached['nothing else']} in f32, which takes "
            f"{seconds['nothing else'] / seconds['--amp']:.1f} times as long; `--epochs 4` reaches {reached['--amp --epochs 4']} ([all runs](docs/results/mini.md)).")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "forward":
        with open("docs/results/cpu.md", encoding="utf-8") as page:
            print(forward_line(page.read(), sys.argv[2]))
    elif sys.argv[1:] == ["mini"]:
        with open("docs/results/mini.md", encoding="utf-8") as page:
            print(mini_line(page.read()))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
