"""bench_results.py - what the lines of a bench say: medians over rounds, ratios of engines, limits of the machine.

Of a peer that tried settings those count that went on the longest, and of them the ones with the best median.
"""
import random
import statistics

from bench_machine import QUICK

OURS, LLAMA = 'llm_infer', 'llama.cpp'
KV8 = 'llm_infer-kv8'  # ours with int8 keys and values
OWN = (OURS, KV8)
LLAMAS = (LLAMA, 'llama.cpp-amx')
PEERS = [*LLAMAS, 'openvino']
NAMES = [OURS, *PEERS, KV8]
EIGHT_BITS = ('int8', 'u8', 'q8_0')


def name_of(line):
    if line['what'] == 'prefill':
        return f"prefill {line['prompt']}"
    if line['what'] == 'table':
        return f"table of {line['rows']} rows"
    text = f"decode {line['batch']} at {line['depth']}"
    return text + ' shared' if line['shared'] else text


def rate_of(line):
    return line.get('tokens_per_second') or line.get('rows_per_second')


def median_rate(lines):
    return statistics.median(map(rate_of, lines))


def medians(lines):
    """file -> name -> engine -> the lines of its best settings; SQL is not among them, nor what it is compared with."""
    every = {}
    for line in lines:
        if line['what'] in ('prefill', 'decode', 'table') and line['part'] != 'sql':
            by_settings = every.setdefault(line['file'], {}).setdefault(name_of(line), {}).setdefault(line['engine'], {})
            by_settings.setdefault(line['settings'], []).append(line)
    for names in every.values():
        for engines in names.values():
            for engine, by_settings in engines.items():
                most = max(map(len, by_settings.values()))
                engines[engine] = max((v for v in by_settings.values() if len(v) == most), key=median_rate)
    return every


def interval(values):
    """95% of the medians of samples drawn from the values again."""
    rng = random.Random(1)
    found = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(4000))
    return found[100], found[-101]


def cell(found):
    """The median and the range, as text."""
    rates = sorted(map(rate_of, found))
    digits = 0 if rates[0] >= 100 else 1
    return f'{statistics.median(rates):.{digits}f}', f'{rates[0]:.{digits}f}-{rates[-1]:.{digits}f}'


class Figure:
    """A value with the rounds behind it."""

    def __init__(self, value, of_rounds, note=''):
        self.value, self.of_rounds, self.note = value, list(of_rounds), note


class Results:
    def __init__(self, lines):
        self.lines = lines
        self.every = medians(lines)
        self.peers = [p for p in PEERS if any(line.get('engine') == p for line in lines)]
        self.kv8 = any(line.get('engine') == KV8 for line in lines)
        self.kv_types = {}  # engine -> how it kept keys and values
        for line in lines:
            if line.get('kv_type') and line['what'] in ('prefill', 'decode', 'table'):
                self.kv_types.setdefault(line['engine'], {})[line['kv_type']] = True
        self.reports = {line['file']: line['report'] for line in lines if line['what'] == 'profile'}
        self.machine = {k: v for line in lines if line['what'] == 'machine' for k, v in line.items() if v}
        self.limits = [line for line in lines if line['what'] == 'limits'] + [
            {**report, 'file': file} for file, report in self.reports.items()]

    def of(self, what, **keys):
        return [line for line in self.lines if line['what'] == what and all(line.get(k) == v for k, v in keys.items())]

    def loads(self, file, there):
        """Lines of loads for which memory was touched beforehand, and was there; or of loads as they come."""
        return [line for line in self.of('load', file=file) if ('touch' in line) == there and line.get('touch', 0) < QUICK]

    def found(self, file, name, engine):
        return self.every.get(file, {}).get(name, {}).get(engine, [])

    def rate(self, file, name, engine):
        found = self.found(file, name, engine)
        return median_rate(found) if found else None

    def ratio(self, file, name, *engines, scale=1, ours=OURS):
        """Ours to the fastest of engines, or None; of the rounds those that both have."""
        there = [e for e in engines if self.found(file, name, e)]
        mine = self.found(file, name, ours)
        if not mine or not there:
            return None
        best = max(there, key=lambda e: self.rate(file, name, e))
        theirs = self.found(file, name, best)
        by_round = {line['round']: rate_of(line) for line in theirs}
        pairs = [rate_of(line) / by_round[line['round']] for line in mine if line['round'] in by_round]
        unit = 'rows/s' if name.startswith('table') else 'tok/s'
        return Figure(median_rate(mine) / median_rate(theirs) / scale, (p / scale for p in pairs),
                      f'{cell(mine)[0]} {unit}, {best} {cell(theirs)[0]}')

    def equal_ratio(self, file, name, peer):
        """Ours to a peer's with keys and values of as many bits; the other one of ours is in the note."""
        mine, other = self.ratio(file, name, peer), self.ratio(file, name, peer, ours=KV8)
        if not mine or not other:
            return mine or other
        kinds = ['f16', 'int8']
        if set(EIGHT_BITS) & set(self.kv_types.get(peer, ())):
            mine, other = other, mine
            kinds.reverse()
        their = '/'.join(self.kv_types.get(peer, ())) or 'unknown'
        return Figure(mine.value, mine.of_rounds, f'{kinds[0]} KV {mine.note} ({their} KV); with {kinds[1]} KV {other.value:.2f}x: '
                      + other.note.split(',')[0])

    def fraction(self, file, name, key, ours=OURS):
        values = [line[key] for line in self.found(file, name, ours) if key in line]
        return Figure(statistics.median(values), values) if values else None

    def limit(self, key, family=''):
        """Of all that were measured beside a file of a family; 0 when none was. KEY_median is the median of medians."""
        found = [limits[key] for limits in self.limits if limits.get(key) and limits['file'].startswith(family)]
        return (statistics.median(found) if key.endswith('_median') else max(found)) if found else 0

    def machine_limits(self):
        """Name, amount and median of each, as texts."""
        for name, key, family, unit, size in (
                ('read, all threads, 256 MiB as 1.1B needs', 'read_bandwidth', 'random1b', 'GB/s', 1e9),
                ('read, all threads, as many bytes as 1.1B has', 'read_bandwidth_weights', 'random1b', 'GB/s', 1e9),
                ('read, one thread, 256 MiB', 'read_bandwidth_1', 'random1b', 'GB/s', 1e9),
                ('read, all threads, as much as SmolLM2 needs', 'read_bandwidth', 'smollm2', 'GB/s', 1e9),
                ('int8 peak, vector instructions', 'int8_ops', '', 'Top/s', 1e12),
                ('int8 peak, AMX tiles', 'amx_ops', '', 'Top/s', 1e12), ('float32 peak', 'f32_ops', '', 'Top/s', 1e12)):
            if self.limit(key, family):
                yield (name, f'{self.limit(key, family) / size:.2f} {unit}',
                       f"{self.limit(key + '_median', family) / size:.2f}")

    def kept(self):
        """What each engine kept keys and values as, as text."""
        return ', '.join(f"{e} {' or '.join(self.kv_types[e])}" for e in (OURS, KV8, *self.peers) if e in self.kv_types)

    def tables(self, files, engines):
        """(rate, rows, file, engine) of every table, the fastest first."""
        found = [(median_rate(lines), lines[0]['rows'], file, engine) for file in files
                 for name, by_engine in self.every.get(file, {}).items() if name.startswith('table')
                 for engine, lines in by_engine.items() if engine in engines]
        return sorted(found, reverse=True)
