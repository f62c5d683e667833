#!/usr/bin/env python3
"""bench_profile.py ENGINE THREADS OUT NAME=MODEL...: our engine's steps, op by op, and its loading time, as JSON lines in OUT.

Loading is the time from the program's start to its first token, LOADS times, each after the file was read, so that it is in
the page cache, and as much memory was touched (bench_machine.py).
"""
import json
import os
import subprocess
import statistics
import sys
import time

import bench_lines
from bench_machine import touch_memory

LOADS = 5


def profile(engine, threads, name, model):
    """Small models at a context of 512, where attention counts; for large ones filling 32 of them takes too long."""
    depth = '512' if name.startswith('smollm2') else '0'
    run = subprocess.run([engine, 'bench', '--model', model, '--threads', threads, '--prompt-tokens', '512', '--batch', '1,32', '--depth',
                          depth, '--gen-tokens', '24', '--reps', '1', '--profile', '--json'], check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def load(engine, threads, model):
    with open(model, 'rb', buffering=0) as f:
        while f.read(1 << 22):
            pass
    touch_memory(3 * 10**8 + os.path.getsize(model))
    begin = time.monotonic()
    subprocess.run([engine, 'run', '--model', model, '--threads', threads, '--raw', '--prompt', 'hi', '--max-tokens', '1',
                    '--kv-memory', '64'], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def show_load(name, times, nbytes):
    seconds = statistics.median(times)
    print(f'{name}: {seconds:.2f} s to the first token, {1e9 * seconds / nbytes:.2f} s per GB ({min(times):.2f} to {max(times):.2f} s)')


def show(name, report):
    for p in report['phases']:
        ops = sorted(p['ops'], key=lambda op: -op['seconds'])[:6]
        print(f"{name}: {p['phase']} {p.get('prompt') or p['batch']}: {p['tokens_per_second']:.0f} tokens/s,"
              f" {100 * p['roofline_fraction']:.0f}% of the roofline; " + ', '.join(
                  f"{op['name']} {100 * op['seconds'] / p['seconds']:.0f}%" for op in ops))


def main(engine, threads, out, *files):
    lines = bench_lines.Lines(out)
    models = dict(file.split('=', 1) for file in files)
    times = {name: [] for name in models}
    for name in models:
        lines.forget('profile', name)
    for number in range(1, LOADS + 1):
        for name, model in models.items():
            times[name].append(load(engine, threads, model))
            lines.note('profile', 'load', engine='llm_infer', file=name, round=number, bytes=os.path.getsize(model),
                       seconds=times[name][-1])
    for name, model in models.items():
        show_load(name, times[name], os.path.getsize(model))
        report = profile(engine, threads, name, model)
        lines.note('profile', 'profile', engine='llm_infer', file=name, report=report)
        show(name, report)


if __name__ == '__main__':
    main(*sys.argv[1:])
