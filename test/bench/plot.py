#!/usr/bin/env python3
"""plot.py RESULTS.jsonl DOCS: put the figures of a bench into DOCS/benchmarks.md and its plots beside it.

Reads the lines that scripts/bench --out wrote (their keys are told in that document), replaces what lies between its
markers `<!-- begin NAME -->` and `<!-- end NAME -->`, and writes DOCS/benchmarks/*.svg. What was not measured is shown as a dash.
"""
import json
import os
import re
import statistics
import sys

from bench_report import PEERS, cell, medians, rate_of
from svg_chart import Chart, document

OURS = 'llm_infer'
LLAMA = ('llama.cpp', 'llama.cpp-amx')  # bounds refer to whichever is faster
NAMES = [OURS, *PEERS]
TYPES = ('q4_1', 'q4_0', 'q8_0')
# Tokens/s of ik_llama.cpp and of llama.cpp beside it on another machine (2 Zen 4 cores, 2 threads): it is no package, so its
# ratio to llama.cpp there stands for it here.
IK = {('decode 1 at 0', 'q4_1'): 155 / 128, ('decode 1 at 0', 'q4_0'): 234 / 152, ('decode 1 at 0', 'q8_0'): 151 / 117,
      ('prefill 512', 'q4_1'): 1268 / 332}
ROWS_PER_TOP = 32.8 / 0.91  # rows/s of the table workload per int8 Top/s, were its products all


def percent(v, digits=0):
    return f'{100 * v:.{digits}f}%'


def times(v):
    return f'{v:.2f}x'


def markdown(head, rows):
    return '\n'.join('| ' + ' | '.join(r) + ' |' for r in [head, ['---'] + ['---:'] * (len(head) - 1), *rows])


class Results:
    def __init__(self, lines):
        self.lines = lines
        self.every = medians([line for line in lines if line.get('settings') != 'pairs'])  # those are for the cost of SQL
        self.peers = [p for p in PEERS if any(line.get('engine') == p for line in lines)]
        self.reports = {line['file']: line['report'] for line in lines if line['what'] == 'profile'}
        self.machine = {k: v for line in lines if line['what'] == 'machine' for k, v in line.items() if v}

    def of(self, what, **keys):
        return [line for line in self.lines if line['what'] == what and all(line.get(k) == v for k, v in keys.items())]

    def file(self, family, kind):
        """The file's name, such as smollm2-q4_1: the family is its beginning."""
        return next((f for f in self.every if f.startswith(family) and f.endswith(kind)), None)

    def found(self, file, name, engine):
        return self.every.get(file, {}).get(name, {}).get(engine, [])

    def rate(self, file, name, engine):
        found = self.found(file, name, engine)
        return statistics.median(map(rate_of, found)) if found else None

    def ratio(self, file, name, *engines):
        """Ours to the fastest of engines."""
        ours, peers = self.rate(file, name, OURS), [self.rate(file, name, e) for e in engines]
        return ours / max(filter(None, peers)) if ours and any(peers) else None

    def fraction(self, file, name, key):
        values = [line[key] for line in self.found(file, name, OURS) if key in line]
        return statistics.median(values) if values else None

    def limit(self, key):
        """The best of all reports: each was measured beside other things."""
        return max((report[key] for report in self.reports.values()), default=0)

    def table_name(self):
        """The largest table that was measured."""
        rows = [line['rows'] for line in self.of('table')]
        return f'table of {max(rows)} rows' if rows else ''


# ---- bounds ----

def bound_rows(r):
    """(what, at least or at most, aim, measured, how a value is written, less is better)"""
    for name, key, bounds in (('decode, batch 1', 'decode 1 at 0', ((1.9, 2.6), (1.9, 2.4), (1.8, 2.1))),
                              ('prefill of 512', 'prefill 512', ((4.5, 6), (1.8, 2.3))),
                              ('prefill of 2,048', 'prefill 2048', ((3.2, 4.5), (1.7, 2.3)))):
        for kind, (least, aim) in zip(TYPES, bounds):
            yield (f'{name}, SmolLM2 {kind.upper()}, over llama.cpp', least, aim,
                   r.ratio(r.file('smollm2', kind), key, *LLAMA), times, False)
    for name, key, kind, least, aim in (('decode, batch 1', 'decode 1 at 0', 'q4_1', 1.5, 2.1),
                                        ('decode, batch 1', 'decode 1 at 0', 'q4_0', 1.25, 1.55),
                                        ('decode, batch 1', 'decode 1 at 0', 'q8_0', 1.4, 1.65),
                                        ('prefill of 512', 'prefill 512', 'q4_1', 1.3, 1.7)):
        ratio = r.ratio(r.file('smollm2', kind), key, 'llama.cpp')
        yield (f'{name}, SmolLM2 {kind.upper()}, over ik_llama.cpp (scaled)', least, aim,
               ratio and ratio / IK[key, kind], times, False)
    for name, key, least, aim in (('prefill of 512', 'prefill 512', 1.15, 1.35), ('prefill of 2,048', 'prefill 2048', 1.0, 1.3),
                                  ('decode, batch 8 at 512', 'decode 8 at 512', 1.4, 2),
                                  ('decode, batch 32 at 512', 'decode 32 at 512', 1.4, 2)):
        yield (f'{name}, SmolLM2 Q8_0, over OpenVINO', least, aim, r.ratio(r.file('smollm2', 'q8_0'), key, 'openvino'), times, False)
    yield ('decode, batch 32 at 512, 1.1B Q4_0, over llama.cpp', 1.5, 2.5,
           r.ratio(r.file('random', 'q4_0'), 'decode 32 at 512', *LLAMA), times, False)
    for kind, least, aim in (('q8_0', .88, .97), ('q4_0', .8, .92)):
        yield (f'decode, batch 1, 1.1B {kind.upper()}, of the read bandwidth', least, aim,
               r.fraction(r.file('random', kind), 'decode 1 at 0', 'bandwidth_fraction'), percent, False)
    for kind in ('q8_0', 'q4_0', 'q4_k'):
        yield (f'prefill of 512, 1.1B {kind.upper()}, of the int8 peak', .55, .65,
               r.fraction(r.file('random', kind), 'prefill 512', 'int8_fraction'), percent, False)
    yield from table_bounds(r)
    yield from other_bounds(r)


def table_bounds(r):
    name = r.table_name()
    yield ('table workload, SmolLM2 Q8_0, rows/s over OpenVINO', 1.3, 1.7, r.ratio(r.file('smollm2', 'q8_0'), name, 'openvino'),
           times, False)
    ours, llama = (max((r.rate(r.file('smollm2', k), name, e) or 0 for k in TYPES for e in engines)) for engines in ((OURS,), LLAMA))
    yield 'table workload, best file of each, rows/s over llama.cpp', 3.5, 5, ours / llama if ours and llama else None, times, False
    peak = r.limit('int8_ops')
    yield ('table workload, best file, of the roofline at the int8 peak', .6, .72,
           ours / (ROWS_PER_TOP * peak / 1e12) if ours and peak else None, percent, False)


def cost_of_sql(r):
    """By processor time when both sides have it, else by rows/s; of pairs with the same file and round."""
    costs = []
    for sql in r.of('table', engine=OURS, through='sql'):
        for bare in r.of('table', through='engine', **{key: sql[key] for key in ('engine', 'file', 'rows', 'round', 'settings')}):
            if 'cpu_seconds' in sql and 'cpu_seconds' in bare:
                costs.append(sql['cpu_seconds'] / bare['cpu_seconds'] - 1)
            else:
                costs.append(bare['rows_per_second'] / sql['rows_per_second'] - 1)
    return statistics.median(costs) if costs else None


def other_bounds(r):
    yield 'the same through SQL: more time', .03, .01, cost_of_sql(r), lambda v: percent(v, 1), True
    load = [line['seconds'] / line['bytes'] * 1e9 for line in r.of('load', engine=OURS) if line['bytes'] > 5e8]
    yield ('load of 1.1B, page cache to first token, s per GB, worst file', 1, .5, max(load, default=None), '{:.2f}'.format, True)
    rises = [line['perplexity'] / line['reference_perplexity'] - 1 for line in r.of('accuracy', kv_type='f16')]
    yield ('perplexity over float32 on the same weights, f16 KV, worst file', .005, .001, max(rises) if rises else None,
           lambda v: percent(v, 2), True)


def bounds_table(r):
    rows = []
    for what, bound, aim, value, write, less in bound_rows(r):
        sign = '<=' if less else '>='
        shown, verdict = '-', ''
        if value is not None:
            reached = [value <= b if less else value >= b for b in (bound, aim)]
            shown, verdict = write(value), 'aim' if reached[1] else 'yes' if reached[0] else 'no'
        rows.append([what, f'{sign} {write(bound)}', f'{sign} {write(aim)}', shown, verdict])
    return markdown(['figure', 'bound', 'aim', 'measured', 'reached'], rows)


# ---- tables ----

def speed_table(r):
    rows = []
    for file, names in r.every.items():
        for name, engines in names.items():
            ours = engines.get(OURS)
            row = [f'{file}: {name}', '{} ({})'.format(*cell(ours)) if ours else '-']
            for key in ('bandwidth_fraction', 'int8_fraction', 'roofline_fraction'):
                value = r.fraction(file, name, key)
                row.append('' if value is None else percent(value))
            for engine in r.peers:
                found = engines.get(engine)
                ratio = r.ratio(file, name, engine)
                row += ['{} ({})'.format(*cell(found)) if found else '-', times(ratio) if ratio else '']
            rows.append(row)
    head = ['tokens/s or rows/s, median (range)', 'llm_infer', 'bandwidth', 'int8 peak', 'roofline']
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
    out = [f'- {k}: {v}' for k, v in r.machine.items() if k not in ('what', 'load', 'commit') and not k.endswith(('_ops', '_median'))
           and 'bandwidth' not in k]
    for key, name, unit, size in (('read_bandwidth', 'read, all threads', 'GB/s', 1e9), ('read_bandwidth_1', 'read, one thread', 'GB/s', 1e9),
                                  ('int8_ops', 'int8 peak, vector instructions', 'Top/s', 1e12),
                                  ('amx_ops', 'int8 peak, AMX tiles', 'Top/s', 1e12), ('f32_ops', 'float32 peak', 'Top/s', 1e12)):
        if r.limit(key):
            out.append(f"- {name}: {r.limit(key) / size:.2f} {unit} (median {r.limit(key + '_median') / size:.2f})")
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
                  (10, top * 2.2), 640, 500, y_log=True, x_ticks=[4 ** k for k in range(8)])
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
                      (0, top), 456, 380, x_ticks=batches, right=136)
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
        if not lines:
            continue
        rows = sorted({n for _, points in lines for n, _ in points})
        chart = Chart(f'{file}: table workload', 'rows', 'rows/s', (rows[0] / 1.5, rows[-1] * 1.5), (0, 1.1 * max(
            v for _, points in lines for _, v in points)), 456, 340, x_ticks=rows, right=124)
        for engine, points in lines:
            chart.line(points, NAMES.index(engine))
        for engine, points in lines:
            chart.labels([(*points[-1], f'{engine} {points[-1][1]:.1f}')], NAMES.index(engine))
        charts.append(chart)
    return charts


def main(results, docs):
    with open(results, encoding='utf-8') as f:
        r = Results([json.loads(line) for line in f])
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
