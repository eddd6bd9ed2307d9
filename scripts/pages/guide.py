#!/usr/bin/env python3
"""Run the commands of pages and put what they print behind them (a minute for all pages on two idle cores).

In a page, a line of a console block that begins with "$ " is a command for bash, with the lines "> " that follow; what stands below
is its output. The commands of a page run in a folder of its own with small pictures of Fashion-MNIST: clothes/ has ten classes of
100 training and 50 evaluation images; few/ three classes of 10 and 100; many/ the other seven classes with 300 and 50. With --check
the pages stay as they are, and it is an error if the output differs in more than its numbers, classes and curves.

usage: [TOWERS=BINARY] scripts/pages/guide.py [--check] [PAGE...]      without PAGE: all below docs; BINARY must have fault points
"""
import difflib, gzip, os, re, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FASHION_MNIST = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
CLASSES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
FEW = ["coat", "dress", "sandal"]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def pictures_write(folder):
    for part, stem in (("train", "train"), ("val", "t10k")):
        pixels, labels = (gzip.open(FASHION_MNIST / f"{stem}-{kind}-ubyte.gz").read()
                          for kind in ("images-idx3", "labels-idx1"))
        for name, classes, train, val in (("clothes", CLASSES, 100, 50), ("few", FEW, 10, 100),
                                          ("many", [name for name in CLASSES if name not in FEW], 300, 50)):
            for label in map(CLASSES.index, classes):
                to = folder / name / part / CLASSES[label]
                to.mkdir(parents=True)
                found = [i for i, other in enumerate(labels[8:]) if other == label][:train if part == "train" else val]
                for i in found:
                    (to / f"{i:05}.pgm").write_bytes(b"P5\n28 28\n255\n" + pixels[16 + 784 * i:16 + 784 * (i + 1)])


def block_run(block, folder):
    """The block with its commands and what they print today."""
    lines = []
    for shown in re.findall(r"^\$ .*(?:\n> .*)*", block, re.M):
        command = re.sub(r"^[$>] ", "", shown, flags=re.M)
        done = subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"guide: '{command}' ends with {done.returncode}:\n{done.stdout}")
        lines += [shown, *done.stdout.replace(f"{folder}/", "").splitlines()]
    return "".join(line.rstrip() + "\n" for line in lines)


def masked(text):
    """The lines of a page without what differs between machines: numbers with their signs and widths, predicted classes, curves."""
    text = re.sub(r"\|[ *O]*$", "|", text, flags=re.M)
    text = re.sub(rf"\b({'|'.join(CLASSES)})\b", "CLASS", text)
    return re.sub(r"[ -]+", " ", re.sub(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?", "#", text)).splitlines()


def main():
    check = "--check" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--check"]
    pages = [Path(name) for name in names] or [page for page in sorted(ROOT.glob("docs/**/*.md")) if BLOCK.search(page.read_text())]
    os.environ.update(LC_ALL="C", TOWERS_DEVICE="cpu", TOWERS_RECIPE="none")
    with tempfile.TemporaryDirectory(prefix="towers-guide.") as work:
        (Path(work) / "bin").mkdir()
        (Path(work) / "bin/towers").symlink_to(Path(os.environ.get("TOWERS", ROOT / "build-test/towers")).resolve())
        os.environ.update(PATH=f"{work}/bin:{os.environ['PATH']}", XDG_CACHE_HOME=f"{work}/cache")
        differences = []
        for page in pages:
            folder = Path(work) / f"{page.resolve().parent.name}-{page.stem}"
            pictures_write(folder)
            before = page.read_text()
            after = BLOCK.sub(lambda block: f"```console\n{block_run(block[1], folder)}```", before)
            if not check:
                page.write_text(after)
            else:
                differences += difflib.unified_diff(masked(before), masked(after), str(page), "the output of today", lineterm="", n=1)
        if differences:
            sys.exit("\n".join(differences) + "\nguide: scripts/pages/guide.py writes these pages anew")


if __name__ == "__main__":
    main()
