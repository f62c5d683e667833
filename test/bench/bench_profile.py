#!/usr/bin/env python3
"""bench_profile.py ENGINE THREADS OUT NAME=MODEL...: our engine's steps, op by op, and its loading time, as JSON lines in OUT.

Loading is the time from the program's start to its first token, with the file in the page cache; the least of LOADS runs.
"""
import json
import os
import subprocess
import sys
import time

LOADS = 5


def profile(engine, threads, name, model):
    """Small models at a context of 512, where attention counts; for large ones filling 32 of them takes too long."""
    depth = '512' if name.startswith('smollm2') else '0'
    run = subprocess.run([engine, 'bench', '--model', model, '--threads', threads, '--prompt-tokens', '512', '--batch', '1,32', '--depth',
                          depth, '--gen-tokens', '40', '--profile', '--json'], check=True, stdout=subprocess.PIPE)
    return {'what': 'profile', 'engine': 'llm_infer', 'file': name, 'report': json.loads(run.stdout)}


def load(engine, threads, name, model):
    times = []
    for _ in range(LOADS):
        begin = time.monotonic()
        subprocess.run([engine, 'run', '--model', model, '--threads', threads, '--raw', '--prompt', 'hi', '--max-tokens', '1',
                        '--kv-memory', '64'], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.monotonic() - begin)
    return {'what': 'load', 'engine': 'llm_infer', 'file': name, 'bytes': os.path.getsize(model), 'seconds': min(times)}


def show(line):
    if line['what'] == 'load':
        print(f"{line['file']}: {line['seconds']:.2f} s to the first token, {1e9 * line['seconds'] / line['bytes']:.2f} s per GB")
        return
    for p in line['report']['phases']:
        ops = sorted(p['ops'], key=lambda op: -op['seconds'])[:6]
        print(f"{line['file']}: {p['phase']} {p.get('prompt') or p['batch']}: {p['tokens_per_second']:.0f} tokens/s,"
              f" {100 * p['roofline_fraction']:.0f}% of the roofline; " + ', '.join(
                  f"{op['name']} {100 * op['seconds'] / p['seconds']:.0f}%" for op in ops))


def main(engine, threads, out, *files):
    with open(out, 'a', encoding='utf-8') as f:
        for name, model in (file.split('=', 1) for file in files):
            for line in (load(engine, threads, name, model), profile(engine, threads, name, model)):
                f.write(json.dumps(line) + '\n')
                f.flush()
                show(line)


if __name__ == '__main__':
    main(*sys.argv[1:])
