#!/usr/bin/env python3
"""Make docs/images/report-*.png, the top of a report, and towers-*.png, its part about the towers, in light and dark: of fashion_cnn,
trained for six epochs of Fashion-MNIST with four towers, some minutes on two cores. Needs Chromium.

    scripts/pages/report_pictures.py [--towers build/towers] [--run DIR]      --run: a run that is there
"""
import argparse
import os
import subprocess
import sys
import tempfile

top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(top, 'tests', 'support'))
sys.dont_write_bytecode = True
from browser import Browser  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--towers', default=os.path.join(top, 'build', 'towers'), help='the program')
parser.add_argument('--run', help='take the pictures of this run')
options = parser.parse_args()
if Browser.missing:
    sys.exit(f'error: {Browser.missing} (package chromium)')
if not os.access(options.towers, os.X_OK):
    sys.exit(f'error: no {options.towers}: build it (README.md), or give --towers')

with tempfile.TemporaryDirectory() as work, Browser() as browser:
    run = options.run or os.path.join(work, 'clothes')
    if not options.run:
        subprocess.run([options.towers, 'train', 'fashion_cnn', '--towers', '4', '--threads', '1', '--batch-size', '32', '--epochs', '6',
                        '--sched', 'cosine', '--lr', '0.002', '--output-dir', work, '--experiment', 'clothes', '--quiet'], check=True)
    subprocess.run([options.towers, 'report', run, '--quiet'], check=True)
    for mode in 'light', 'dark':
        browser.open(os.path.join(run, 'report.html'), height=1130, dark=mode == 'dark', scale=1.5)
        for name, part in ('report', 'header'), ('towers', '#towers'):
            browser.ask(f"window.scrollTo(0, document.querySelector('{part}').getBoundingClientRect().top + window.scrollY - 40)")
            path = os.path.join(top, 'docs', 'images', f'{name}-{mode}.png')
            browser.picture(path)
            print(os.path.relpath(path, top))
