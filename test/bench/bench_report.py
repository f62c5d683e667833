#!/usr/bin/env python3
"""bench_report.py - the tables of a bench's results as text.

usage: bench_report.py RESULTS.jsonl

A cell is the median over the rounds and the range; of a peer that tried settings, those with the best median. A ratio
is ours to the peer's, where nothing else is said with keys and values of 16 bits. bw, peak and roof are the fractions that we reach of the machine's bandwidth, of its int8 peak and
of what both allow. At the end of a line are the settings of each peer. Last come the figures that must be reached.
"""
import sys

import bench_lines
from bench_bounds import HEAD, bounds, percent
from bench_results import KV8, OURS, Results, cell


def row(r, file, name):
    engines = r.every[file][name]
    ours = engines.get(OURS)
    text = f'  {name:22}'
    if ours:
        figures = [r.fraction(file, name, key) for key in ('bandwidth_fraction', 'int8_fraction', 'roofline_fraction')]
        text += ''.join(f'{c:>{w}}' for c, w in zip(cell(ours), (9, 13))) + ''.join(
            f"{percent(figure.value) if figure else '':>6}" for figure in figures)
    else:
        text += ' ' * 40
    if r.kv8:
        text += ''.join(f'{c:>{w}}' for c, w in zip(cell(engines[KV8]), (14, 12))) if KV8 in engines else f'{"-":>14}{"":12}'
    for engine in r.peers:
        found = engines.get(engine)
        if not found:
            text += f'{"-":>14}{"":20}'
            continue
        text += ''.join(f'{c:>{w}}' for c, w in zip(cell(found), (14, 12)))
        ratio = r.ratio(file, name, engine)
        text += f'{ratio.value:7.2f}x' if ratio else ' ' * 8
    return text + '   ' + '; '.join(engines[e][0]['settings'] for e in r.peers if e in engines)


def say_machine(r):
    print('machine: ' + ', '.join(f'{k} {v:.3g}' if isinstance(v, float) else f'{k} {v}'
                                  for k, v in r.machine.items() if k not in ('what', 'part', 'load')))
    for name, amount, median in r.machine_limits():
        print(f'{name}: {amount} (median {median})')
    if r.kv_types:
        print(f'keys and values: {r.kept()}')
    n = sum('disturbed' in limits for limits in r.limits)
    if n:
        print(f'other processes took the cores in {n} of {len(r.limits)} runs of ours')


def say_rates(r):
    print(f'\n{"tokens/s or rows/s":24}{OURS:>9}{"range":>13}{"bw":>6}{"peak":>6}{"roof":>6}' + (f'{KV8:>14}{"range":>12}' if r.kv8 else '') + ''.join(
        f'{p:>14}{"range":>12}{"ratio":>8}' for p in r.peers))
    for file in dict.fromkeys(line['file'] for line in r.lines if 'file' in line):
        print(f'{file}')
        for name in r.every.get(file, {}):
            print(row(r, file, name))
        for line in r.lines:
            if line.get('file') != file:
                continue
            who = ' '.join(filter(None, [line.get('engine'), line.get('settings')]))
            if line['what'] == 'agreement' and not line['agrees']:
                print(f"  {who} does not count: {line['reason']}")
            elif line['what'] == 'agreement':
                print(f"  {who}: text of {line['agree']} of {line['of']} prompts agrees with the reference")
            elif line['what'] == 'failed':
                print(f"  {who} failed: {line['reason']}")


def say_bounds(r):
    rows = [HEAD, *(b.cells() for b in bounds(r))]
    wide = [max(len(cells[i]) for cells in rows) for i in range(len(HEAD) - 1)]
    print('\nMusts')
    for cells in rows:
        print('  '.join(f'{text:{"<" if i == 0 else ">"}{wide[i]}}' for i, text in enumerate(cells[:-1])) + '  ' + cells[-1])


def main(results):
    r = Results(bench_lines.read(results))
    say_machine(r)
    say_rates(r)
    say_bounds(r)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
