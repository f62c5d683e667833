#!/usr/bin/env python3
"""bench_report.py - the table of a bench's results.

usage: bench_report.py RESULTS.jsonl

A cell is the median over the rounds and the range; of a peer that tried settings, those with the best median. A ratio
is ours to the peer's. bw, peak and roof are the fractions that we reach of the machine's bandwidth, of its int8 peak and
of what both allow. At the end of a line are the settings of each peer.
"""
import json
import statistics
import sys

PEERS = ['llama.cpp', 'llama.cpp-amx', 'openvino']


def name_of(line):
    if line['what'] == 'prefill':
        return f"prefill {line['prompt']}"
    if line['what'] == 'table':
        return f"table of {line['rows']} rows"
    text = f"decode {line['batch']} at {line['depth']}"
    return text + ' shared' if line['shared'] else text


def rate_of(line):
    return line.get('tokens_per_second') or line.get('rows_per_second')


def medians(lines):
    """file -> name -> engine -> the lines of its best settings."""
    every = {}
    for line in lines:
        if line['what'] in ('prefill', 'decode', 'table'):
            by_settings = every.setdefault(line['file'], {}).setdefault(name_of(line), {}).setdefault(line['engine'], {})
            by_settings.setdefault(line['settings'], []).append(line)
    for names in every.values():
        for engines in names.values():
            for engine, by_settings in engines.items():
                most = max(map(len, by_settings.values()))
                engines[engine] = max((v for v in by_settings.values() if len(v) == most),
                                      key=lambda v: statistics.median(map(rate_of, v)))
    return every


def cell(found):
    rates = sorted(map(rate_of, found))
    digits = 0 if rates[0] >= 100 else 1
    return f'{statistics.median(rates):.{digits}f}', f'{rates[0]:.{digits}f}-{rates[-1]:.{digits}f}'


def fraction(found, key):
    values = [line[key] for line in found if key in line]
    return f'{100 * statistics.median(values):.0f}%' if values else ''


def row(name, engines, peers):
    ours = engines.get('llm_infer')
    text = f'{name:24}'
    if ours:
        text += ''.join(f'{c:>{w}}' for c, w in zip(cell(ours), (9, 13))) + ''.join(
            f'{fraction(ours, key):>6}' for key in ('bandwidth_fraction', 'int8_fraction', 'roofline_fraction'))
    else:
        text += ' ' * 40
    for engine in peers:
        found = engines.get(engine)
        if not found:
            text += f'{"-":>14}{"":20}'
            continue
        text += ''.join(f'{c:>{w}}' for c, w in zip(cell(found), (14, 12)))
        ratio = statistics.median(map(rate_of, ours)) / statistics.median(map(rate_of, found)) if ours else 0
        text += f'{ratio:7.2f}x' if ours else ' ' * 8
    return text + '   ' + '; '.join(engines[e][0]['settings'] for e in peers if e in engines)


def show(lines):
    peers = [peer for peer in PEERS if any(line.get('engine') == peer for line in lines)]
    for line in lines:
        if line['what'] == 'machine':
            print('machine: ' + ', '.join(f'{k} {v:.3g}' if isinstance(v, float) else f'{k} {v}'
                                          for k, v in line.items() if k not in ('what', 'load') and v))
            print('load before: ' + ' '.join(f'{v:.1f}' for v in line['load']))
    every = medians(lines)
    print(f'\n{"tokens/s or rows/s":24}{"llm_infer":>9}{"range":>13}{"bw":>6}{"peak":>6}{"roof":>6}' + ''.join(
        f'{p:>14}{"range":>12}{"ratio":>8}' for p in peers))
    for file in dict.fromkeys(line['file'] for line in lines if 'file' in line):
        print(f'{file}')
        for name, engines in every.get(file, {}).items():
            print(row('  ' + name, engines, peers))
        for line in lines:
            if line.get('file') != file:
                continue
            who = ' '.join(filter(None, [line['engine'], line.get('settings')]))
            if line['what'] == 'agreement' and not line['agrees']:
                print(f"  {who} does not count: {line['reason']}")
            elif line['what'] == 'agreement':
                print(f"  {who}: text of {line['agree']} of {line['of']} prompts agrees with the reference")
            elif line['what'] == 'failed':
                print(f"  {who} failed: {line['reason']}")


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as results:
        show([json.loads(text) for text in results])
