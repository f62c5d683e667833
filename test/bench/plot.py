#!/usr/bin/env python3
"""plot.py RESULTS.jsonl DOCS: put the figures of a bench into DOCS/benchmarks.md and its plots beside it.

Reads the lines that scripts/bench --out wrote (their keys are told in that document), replaces what lies between its
markers `<!-- begin NAME -->` and `<!-- end NAME -->`, and writes DOCS/benchmarks/*.svg. What was not measured is shown as a dash.
"""
import os
import re
import sys

import bench_lines
from bench_bounds import HEAD, bounds, percent, times
from bench_results import KV8, NAMES, OURS, OWN, Results, cell
from svg_chart import Chart, document


def markdown(head, rows):
    return '\n'.join('| ' + ' | '.join(r) + ' |' for r in [head, ['---'] + ['---:'] * (len(head) - 1), *rows])


# ---- tables ----

def bounds_table(r):
    return markdown(HEAD[:-1] + ['beside'], [b.cells() for b in bounds(r)])


def speed_table(r):
    rows = []
    for file, names in r.every.items():
        for name, engines in names.items():
            ours = engines.get(OURS)
            row = [f'{file}: {name}', '{} ({})'.format(*cell(ours)) if ours else '-']
            if r.kv8:
                row.append('{} ({})'.format(*cell(engines[KV8])) if KV8 in engines else '-')
            for key in ('bandwidth_fraction', 'int8_fraction', 'roofline_fraction'):
                figure = r.fraction(file, name, key)
                row.append(percent(figure.value) if figure else '')
            for engine in r.peers:
                found = engines.get(engine)
                ratio = r.ratio(file, name, engine)
                row += ['{} ({})'.format(*cell(found)) if found else '-', times(ratio.value) if ratio else '']
            rows.append(row)
    head = ['tokens/s or rows/s, median (range)', *OWN[:2 if r.kv8 else 1], 'bandwidth', 'int8 peak', 'roofline']
    return markdown(head + [t for p in r.peers for t in (p, 'ratio')], rows)


def phase_name(p):
    return f"prefill {p['prompt']}" if p['phase'] == 'prefill' else f"decode {p['batch']} at {p['depth'] if p['depth'] > 1 else 0}"


def ops_table(r):
    """Of every op the share of a step's time and how near it is to its roofline."""
    parts = []
    for file, report in r.reports.items():
        phases = report['phases']
        names = list(dict.fromkeys(op['name'] for p in phases for op in p['ops']))
        rows = []
        for name in [*names, 'outside']:
            row = [name]
            for p in phases:
                whole = sum(op['seconds'] for op in p['ops']) + p['outside_seconds']
                op = next((op for op in p['ops'] if op['name'] == name), None)
                seconds = p['outside_seconds'] if name == 'outside' else op['seconds'] if op else 0
                near = op and op['seconds'] and op['roofline_seconds'] / op['seconds']
                row += [percent(seconds / whole, 1), percent(near) if near else '']
            rows.append(row)
        head = [file] + [t for p in phases for t in (phase_name(p), 'of roofline')]
        parts.append(markdown(head, rows))
    return '\n\n'.join(parts) or '-'


def machine_list(r):
    out = [f'- {k}: {v}' for k, v in r.machine.items() if k not in ('what', 'part', 'load', 'commit') and not k.endswith(('_ops', '_median'))
           and 'bandwidth' not in k]
    out += [f'- {name}: {amount} (median {median})' for name, amount, median in r.machine_limits()]
    if r.kv_types:
        out.append(f'- keys and values: {r.kept()}')
    return '\n'.join(out)


def accuracy_table(r):
    rows = [[f"{line['file']}, {line['kv_type']} KV", str(line['tokens']), f"{line['reference_perplexity']:.3f}",
             f"{line['perplexity']:.3f}", f"{100 * (line['perplexity'] / line['reference_perplexity'] - 1):+.2f}%"
             f" +- {100 * line['rise_error']:.2f}", f"{line['kl']:.4f}", percent(line['greedy_agreement'], 1)] for line in r.of('accuracy')]
    return markdown(['file', 'tokens', 'float32', 'engine', 'rise', 'KL, nats', 'same likeliest token'], rows)


# ---- plots ----

def roofline_chart(file, report):
    bandwidth, vnni, amx, floats = (report[k] / 1e9 for k in ('read_bandwidth', 'int8_ops', 'amx_ops', 'f32_ops'))
    top = max(vnni, amx)
    chart = Chart(f'{file}: ops beside what the machine can do', 'operations per byte read (log)', 'Gop/s (log)', (.5, 32768),
                  (1, top * 2.2), 640, 500, y_log=True, x_ticks=[4 ** k for k in range(8)])
    chart.roof([(.5, bandwidth * .5), (vnni / bandwidth, vnni), (32768, vnni)], f'int8 vectors, {vnni / 1e3:.2f} Top/s')
    chart.roof([(floats / bandwidth, floats), (32768, floats)], f'float32, {floats / 1e3:.2f} Top/s', dashed=True,
               below=True)
    if amx:
        chart.roof([(vnni / bandwidth, vnni), (amx / bandwidth, amx), (32768, amx)], f'int8 tiles, {amx / 1e3:.1f} Top/s', dashed=True)
    chart.note(.56, bandwidth * .56 * 2.6, f'{bandwidth:.0f} GB/s')
    phases = report['phases']
    decodes = [p for p in phases if p['phase'] == 'decode']
    shown = [decodes[0], decodes[-1]] if len(decodes) > 1 else decodes
    shown += [max((p for p in phases if p['phase'] == 'prefill'), key=lambda p: p['prompt'])]
    points = []
    for color, p in enumerate(shown):
        for op in p['ops']:
            if op['seconds'] and op['bytes'] and op['ops']:
                points.append((op['ops'] / op['bytes'], op['ops'] / op['seconds'] / 1e9, op['name'], color))
    for x, y, _, color in points:
        chart.mark(x, y, color)
    for color, p in enumerate(shown):
        chart.key(color, phase_name(p))
        columns = {}  # points of one phase that stand above each other share a column of names
        for x, y, name, mine in points:
            if mine == color:
                columns.setdefault(round(chart.x(x) / 25), []).append((x, y, name))
        for column in columns.values():
            chart.labels(column, color)
    return chart


def series(r, file, depth, engine, shared):
    points = []
    for name in r.every.get(file, {}):
        match = re.fullmatch(r'decode (\d+) at (\d+)( shared)?', name)
        if match and int(match[2]) == depth and bool(match[3]) == shared:
            rate = r.rate(file, name, engine)
            if rate:
                points.append((int(match[1]), rate))
    return sorted(points)


def batch_charts(r):
    """Tokens/s over the batch, at the depth where most batches were measured."""
    charts = []
    for file in r.every:
        if not file.startswith('smollm2'):
            continue
        found = re.findall(r'decode \d+ at (\d+)', '\n'.join(r.every[file]))
        depth = int(max(set(found), key=found.count)) if found else 0
        lines = [(e, s, series(r, file, depth, e, s)) for e in NAMES for s in (False, True)]
        lines = [line for line in lines if len(line[2]) > 1]
        if not lines:
            continue
        batches = sorted({b for *_, points in lines for b, _ in points})
        top = 1.1 * max(v for *_, points in lines for _, v in points)
        chart = Chart(f'{file}: decode at {depth} tokens', 'sequences that decode together', 'tokens/s', (batches[0], batches[-1]),
                      (0, top), 456, 380, x_ticks=batches, right=150)
        for engine, shared, points in lines:
            chart.line(points, NAMES.index(engine), dashed=shared)
        for engine, shared, points in sorted(lines, key=lambda line: -line[2][-1][1]):
            chart.labels([(*points[-1], engine + (', shared' if shared else ''))], NAMES.index(engine))
        charts.append(chart)
    return charts


def rows_charts(r):
    """Rows/s of the table workload over its rows."""
    charts = []
    for file in r.every:
        lines = []
        for engine in NAMES:
            points = sorted((int(match[1]), r.rate(file, name, engine)) for name in r.every[file]
                            if (match := re.fullmatch(r'table of (\d+) rows', name)) and r.rate(file, name, engine))
            if points:
                lines.append((engine, points))
        rows = sorted({n for _, points in lines for n, _ in points})
        if len(rows) < 2:
            continue
        chart = Chart(f'{file}: table workload', 'rows', 'rows/s', (rows[0] / 1.5, rows[-1] * 1.5), (0, 1.1 * max(
            v for _, points in lines for _, v in points)), 456, 340, x_ticks=rows, right=124)
        for engine, points in lines:
            chart.line(points, NAMES.index(engine))
        for engine, points in lines:
            chart.labels([(*points[-1], f'{engine} {points[-1][1]:.1f}')], NAMES.index(engine))
        charts.append(chart)
    return charts


def main(results, docs):
    r = Results(bench_lines.read(results))
    page = os.path.join(docs, 'benchmarks.md')
    with open(page, encoding='utf-8') as f:
        text = f.read()
    for name, content in (('machine', machine_list(r)), ('bounds', bounds_table(r)), ('speed', speed_table(r)), ('ops', ops_table(r)),
                          ('accuracy', accuracy_table(r))):
        text = re.sub(f'(?s)(<!-- begin {name} -->).*(<!-- end {name} -->)', lambda m: f'{m[1]}\n\n{content}\n\n{m[2]}', text)
    with open(page, 'w', encoding='utf-8') as f:
        f.write(text)
    folder = os.path.join(docs, 'benchmarks')
    os.makedirs(folder, exist_ok=True)
    for name, charts, columns in (('roofline', [roofline_chart(*item) for item in r.reports.items()], 2),
                                  ('batch', batch_charts(r), 3), ('rows', rows_charts(r), 3)):
        if charts:
            with open(os.path.join(folder, name + '.svg'), 'w', encoding='utf-8') as f:
                f.write(document(charts, columns))


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    main(*sys.argv[1:])
