#!/usr/bin/env python3
"""Make docs/images/report-*.png, the top of a report, and towers-*.png, its part about the towers, in light and dark: of fashion_cnn,
trained for six epochs of Fashion-MNIST with four towers, some minutes on two cores. Needs Chromium.

    scripts/pages/report_pictures.py [--towers build/towers] [--run DIR]      --run: a run that is there
    scripts/pages/report_pictures.py [--towers build/towers] --check          are the pictures those of this program?

docs/images/report.sha256 has a digest of each picture, and one of what the program that made them shows of made-up records, in the parts
that the pictures show, without numbers. --check, which needs no Chromium and trains nothing, compares these: exit status 1 if a page
that is made today looks different.
"""
import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile

top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(top, 'tests', 'support'))
sys.dont_write_bytecode = True
from browser import Browser  # noqa: E402

IMAGES = os.path.join(top, 'docs', 'images')
DIGESTS = os.path.join(IMAGES, 'report.sha256')
TOWERS, EPOCHS, STEPS = 4, 6, 100
CLASSES = ['bag', 'boot', 'coat']
# What the pictures show: the style, the page's top with its curves, and the part about the towers.
SHOWN = [('<style>', '</style>'), ('<header>', 'id="classes"'), ('id="towers"', 'id="speed"')]


def records_write(run):
    """A run of which every number is made up, and always the same."""
    rng = random.Random(1)
    os.makedirs(run)

    def write(name, lines):
        with open(os.path.join(run, name), 'w', encoding='utf-8') as file:
            file.write('\n'.join(lines) + '\n')

    steps = []
    for step in range(1, EPOCHS * STEPS + 1):
        loss = [2 * 0.995**step + 0.3 + 0.1 * rng.random() for _ in range(TOWERS)]
        mean = sum(loss) / TOWERS
        steps.append({'step': step, 'epoch': (step - 1) // STEPS, 'lr': 0.001, 'images': 32 * TOWERS, 'images_per_sec': 1000,
                      'wall_seconds': 0.1, 'mean_loss': mean, 'base_loss': mean, 'total_loss': mean, 'last_tower_loss': loss[-1],
                      'tower_loss': loss, 'tower_count': [32] * TOWERS, 'finite': [True] * TOWERS, 'grad_norm': 0.5,
                      'tower_grad_norm': [0.5] * TOWERS, 'arrival_us': [9] * TOWERS, 'data_us': [9] * TOWERS, 'top1': 0.5, 'skipped': False})
    write('metrics.jsonl', map(json.dumps, steps))
    write('results.csv', ['epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds,wasserstein,kid']
          + [f'{e},{e * STEPS},{1 / e},{1 - 0.3 / e},{1.1 / e},{0.9 - 0.2 / e},1,0.001,1000,60,,' for e in range(1, EPOCHS + 1)])
    write('confusion.csv', ['class,' + ','.join(CLASSES), 'bag,95,3,2', 'boot,5,90,5', 'coat,20,5,75'])  # 260 of 300, as after the last epoch
    part = {'images': 300, 'fingerprint': '0', 'class_images': [100] * len(CLASSES)}
    write('env.json', [json.dumps({'towers': '0', 'backend': 'cpu', 'started': '2026-01-01T00:00:00+0000', 'towers_count': TOWERS,
                                   'model': 'fashion_cnn', 'data': 'clothes', 'training_data': part, 'evaluation_data': part,
                                   'classes': len(CLASSES), 'class_names': CLASSES})])


def page_digest(towers):
    """Of the parts that the pictures show, with 0 for every number: rounding, which is other for other processors, does not matter."""
    with tempfile.TemporaryDirectory() as work:
        run = os.path.join(work, 'clothes')
        records_write(run)
        subprocess.run([towers, 'report', run, '--quiet'], check=True)
        with open(os.path.join(run, 'report.html'), encoding='utf-8') as file:
            page = file.read()
    parts = [page[page.index(begin):page.index(end, page.index(begin))] for begin, end in SHOWN]
    shown = parts[0] + re.sub(r'-?\d+(?:\.\d+)?', '0', ''.join(parts[1:]).replace('\u2212', '-'))
    return hashlib.sha256(shown.encode()).hexdigest()


def digests(towers):
    """The lines of report.sha256."""
    lines = [f'{page_digest(towers)}  the page']
    for name in sorted(os.listdir(IMAGES)):
        if re.fullmatch(r'(report|towers)-(light|dark)\.png', name):
            with open(os.path.join(IMAGES, name), 'rb') as file:
                lines.append(f'{hashlib.sha256(file.read()).hexdigest()}  {name}')
    return lines


def check(towers):
    with open(DIGESTS, encoding='utf-8') as file:
        kept = file.read().splitlines()
    other = [line.split('  ', 1)[1] for line in sorted(set(kept) ^ set(digests(towers)))]
    if other:
        sys.exit(f'report_pictures: {" and ".join(sorted(set(other)))} is not what docs/images/report.sha256 says: the pictures of the README '
                 'are not those of this program; run scripts/pages/report_pictures.py')


def pictures_make(towers, run):
    with tempfile.TemporaryDirectory() as work, Browser() as browser:
        if not run:
            run = os.path.join(work, 'clothes')
            subprocess.run([towers, 'train', 'fashion_cnn', '--towers', '4', '--threads', '1', '--batch-size', '32', '--epochs', '6',
                            '--sched', 'cosine', '--lr', '0.002', '--output-dir', work, '--experiment', 'clothes', '--quiet'], check=True)
        subprocess.run([towers, 'report', run, '--quiet'], check=True)
        for mode in 'light', 'dark':
            browser.open(os.path.join(run, 'report.html'), height=1130, dark=mode == 'dark', scale=1.5)
            for name, part in ('report', 'header'), ('towers', '#towers'):
                browser.ask(f"window.scrollTo(0, document.querySelector('{part}').getBoundingClientRect().top + window.scrollY - 40)")
                path = os.path.join(IMAGES, f'{name}-{mode}.png')
                browser.picture(path)
                print(os.path.relpath(path, top))
    with open(DIGESTS, 'w', encoding='utf-8') as file:
        file.write('\n'.join(digests(towers)) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--towers', default=os.path.join(top, 'build', 'towers'), help='the program')
    parser.add_argument('--run', help='take the pictures of this run')
    parser.add_argument('--check', action='store_true', help='make nothing: compare')
    options = parser.parse_args()
    if not os.access(options.towers, os.X_OK):
        sys.exit(f'error: no {options.towers}: build it (README.md), or give --towers')
    if options.check:
        return check(options.towers)
    if Browser.missing:
        sys.exit(f'error: {Browser.missing} (package chromium)')
    return pictures_make(options.towers, options.run)


main()
