#!/usr/bin/env python3
"""bench_profile.py ENGINE THREADS OUT NAME=MODEL...: our engine's steps, op by op, and its loading time, as JSON lines in OUT.

Loading is the time from the program's start to its first token, the file being in the page cache. A bound is for LOADS times
at once after as much memory was touched (bench_machine.py); large files are also loaded as it comes, when the host of a
virtual machine has taken back what is free.

Linux tells the host of free memory every 2 s, a part each time, until all is told. So what is touched for a large file is
held until all else is told; freed then, it stays for 2 s.
"""
import json
import os
import subprocess
import statistics
import sys
import time

import bench_lines
from bench_machine import touch_memory, touch_once
from bench_results import Results

LOADS = 5
TOLD = 5  # seconds, until the host has been told of free memory
LARGE = 5 * 10**8  # bytes of a file
ROOM = 3 * 10**8  # bytes that a load needs beside its weights


def profile(engine, threads, name, model):
    """Small models at a context of 512, where attention counts; for large ones filling 32 of them takes too long."""
    depth = '512' if name.startswith('smollm2') else '0'
    run = subprocess.run([engine, 'bench', '--model', model, '--threads', threads, '--prompt-tokens', '512', '--batch', '1,32', '--depth',
                          depth, '--gen-tokens', '24', '--reps', '1', '--profile', '--json'], check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def load(engine, threads, model):
    begin = time.monotonic()
    subprocess.run([engine, 'run', '--model', model, '--threads', threads, '--raw', '--prompt', 'hi', '--max-tokens', '1',
                    '--kv-memory', '64'], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def loads(lines, engine, threads, models):
    """Of every model in turn."""
    for number in range(1, LOADS + 1):
        for name, model in models.items():
            nbytes = os.path.getsize(model)
            with open(model, 'rb', buffering=0) as f:
                while f.read(1 << 22):
                    pass
            about = {'engine': 'llm_infer', 'file': name, 'round': number, 'bytes': nbytes}
            if nbytes >= LARGE and number == 1:
                time.sleep(TOLD)
                seconds = load(engine, threads, model)
                time.sleep(TOLD)
                first_touch = touch_once(ROOM + nbytes, hold=TOLD)
                lines.note('profile', 'load', **about, first_touch=first_touch, seconds=seconds)
            elif nbytes >= LARGE:
                touch_once(ROOM + nbytes, hold=TOLD)
            touch = touch_memory(ROOM + nbytes)
            lines.note('profile', 'load', **about, touch=touch, seconds=load(engine, threads, model))


def show_loads(r, name):
    for there, what in ((True, 'memory there'), (False, 'as it comes')):
        times = [line['seconds'] for line in r.loads(name, there)]
        tried = sum('touch' in line for line in r.of('load', file=name))
        if there and not times and tried:
            print(f'{name}: none of {tried} loads counts, memory was never there')
        if times:
            nbytes, = {line['bytes'] for line in r.of('load', file=name)}
            print(f'{name}: {statistics.median(times):.2f} s to the first token, {what}, {1e9 * statistics.median(times) / nbytes:.2f}'
                  f' s per GB ({min(times):.2f} to {max(times):.2f} s, {len(times)} loads)')


def show(name, report):
    for p in report['phases']:
        ops = sorted(p['ops'], key=lambda op: -op['seconds'])[:6]
        print(f"{name}: {p['phase']} {p.get('prompt') or p['batch']}: {p['tokens_per_second']:.0f} tokens/s,"
              f" {100 * p['roofline_fraction']:.0f}% of the roofline; " + ', '.join(
                  f"{op['name']} {100 * op['seconds'] / p['seconds']:.0f}%" for op in ops))


def main(engine, threads, out, *files):
    lines = bench_lines.Lines(out)
    models = dict(file.split('=', 1) for file in files)
    for name in models:
        lines.forget('profile', name)
    loads(lines, engine, threads, models)
    for name, model in models.items():
        show_loads(Results(lines.lines), name)
        report = profile(engine, threads, name, model)
        lines.note('profile', 'profile', engine='llm_infer', file=name, report=report)
        show(name, report)


if __name__ == '__main__':
    main(*sys.argv[1:])
