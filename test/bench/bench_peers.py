#!/usr/bin/env python3
"""bench_peers.py - our engine beside llama.cpp and OpenVINO GenAI on the same files, interleaved in one run.

scripts/bench calls it, with what it has built and fetched. In every round each engine measures the same points, in an
order that turns round; medians over the rounds count. In the first round a peer tries its settings (flash attention,
tokens in a step, slots, a prefix shared by hand, 8-bit keys and values); each goes on only with the points at which it was
best. An engine that fails is noted and the others go on. Ours is two engines: with keys and values
of 16 bits, and where it says so with those of 8, like OpenVINO's.

Whether an engine's figures count: 64 prompts are given to it as the same token ids, and the first 4 likeliest tokens of
its answer, end tokens ignored, must be the reference's for at least 90% of the prompts, as far as the reference is
sure: up to the first token that is not 1.35 times (0.3 nats) likelier than the next. The reference is our engine on the
same weights written as 32-bit floats, which it multiplies without rounding anything to 8 bits; for the large files with
random weights it is our engine on the file itself, and 16 prompts. A table counts only if the engine says that its prompts
had as many tokens as ours makes of them.
"""
import argparse
import hashlib
import json
import os
import statistics
import sys
import time

from bench_engines import Failed, Group, Llama, OpenVino, Ours, done
from bench_lines import Lines
from bench_machine import machine, touch_memory
from bench_prompts import short_prompts, table_rows
from bench_results import KV8, LLAMAS, OURS, OWN, Results

N_PROMPTS, N_PROMPTS_LARGE, N_TOKENS, GAP, SHARE = 64, 16, 4, 0.3, 0.9
ROW_TOKENS = 16
CURVE = [1, 2, 4, 8, 16, 32, 64]
TABLE_FILE = 'smollm2-q8_0'  # where OpenVINO's text agrees and llama.cpp's tables are fastest as a rule
KV8_TABLES = (TABLE_FILE, 'smollm2-q4_1')
LLAMA_KV8 = '16 by hand, q8_0 KV'  # slower, so that few rows are asked


def reason_of(e):
    return str(e) if isinstance(e, Failed) else f'{type(e).__name__}: {e}'


def groups(name, quick):
    """Part of the bench -> what it measures on a file: small models at every point, large ones at few."""
    if quick:
        kv8 = name == TABLE_FILE
        return {'speed': [Group([512], [1], [0], rounds=2, builds=True, few=True, kv8=kv8)],
                'batch': [Group([], [8, 32], [512], 'apart', tokens=16, rounds=1, few=True, kv8=True)] if kv8 else []}
    if name == TABLE_FILE:
        later = (*OWN, 'openvino')  # who has a bound
        return {'speed': [Group([128, 512], [1], [0], builds=True, kv8=True), Group([2048], few=True, kv8=True, later=later)],
                'batch': [Group([], [1, 8, 32], [512], 'apart', tokens=16, few=True, kv8=True, later=later),
                          Group([], [2, 4, 16, 64], [512], 'apart', tokens=16, rounds=1, few=True),
                          Group([], CURVE, [512], 'shared', tokens=16, rounds=3, few=True, kv8=True, later=later)]}
    if name.startswith('smollm2'):
        deep = [Group([], [1], [1024, 4096], rounds=3, few=True, later=OWN)] if name == 'smollm2-q4_1' else []
        return {'speed': [Group([128, 512, 2048], [1], [0], builds=True, few=True, later=(*OWN, *LLAMAS)), *deep], 'batch': []}
    return {'speed': [Group([512], [1], [0], few=True, later=OWN, kv8=True)],
            'batch': [Group([], [32], [512], 'shared', tokens=16, few=True, later=(*OWN, *LLAMAS))] if name == 'random1b-q4_0' else []}


class Bench:
    def __init__(self, args):
        self.args = args
        self.lines = Lines(args.out)
        self.counting = {}  # file -> names of the engines whose text agrees
        self.counted = {}  # table of a file -> what our engine counts: tokens of all prompts, and those that they begin with

    def rates(self, file, what, key):
        """Engine's name -> what it had under a key of its lines of a file, or of all, in order."""
        found = {}
        for line in self.lines.lines:
            if line['what'] == what and key in line and file in (None, line['file']):
                found.setdefault(line['engine'], []).append(line[key])
        return found

    # ---- which peers count ----

    def kept(self, key, make):
        """The tokens that make() gives, kept beside the files: they do not change while `key` is the same."""
        digest = hashlib.sha256(json.dumps([N_TOKENS, GAP, *key]).encode()).hexdigest()[:16]
        path = os.path.join(self.args.cache, f'tokens-{digest}.json')
        if not os.path.exists(path):
            tokens = make()
            with open(path + '.part', 'w', encoding='utf-8') as f:
                json.dump(tokens, f)
            os.rename(path + '.part', path)
        with open(path, encoding='utf-8') as f:
            return json.load(f)

    def reference(self, ours, prompts):
        """The tokens that count as right, on the same weights as floats."""
        whole = os.path.join(self.args.cache, f'reference.{os.getpid()}.gguf')
        try:
            done([os.path.join(self.args.llama, 'llama-quantize'), '--allow-requantize', ours.model, whole, 'F32'])
            return Ours(self.args.engine, whole, self.args.threads).sure_tokens(prompts, N_TOKENS, GAP)
        finally:
            if os.path.exists(whole):
                os.remove(whole)

    def agreeing(self, name, own, peers):
        """Those engines whose text is the reference's; the first of ours makes it."""
        ours = own[0]
        prompts = ours.tokenize(short_prompts(N_PROMPTS if name.startswith('smollm2') else N_PROMPTS_LARGE))
        model = [prompts, os.path.basename(ours.model), os.path.getsize(ours.model), os.path.getmtime(ours.model)]
        right = (self.kept(model, lambda: self.reference(ours, prompts)) if name.startswith('smollm2')
                 else ours.sure_tokens(prompts, N_TOKENS, GAP))
        sure = sum(map(bool, right))
        counting = []
        for engine in [*own, *peers]:
            def answer(engine=engine):
                return engine.first_tokens(prompts, N_TOKENS)
            try:
                answers = answer() if engine in own else self.kept([*model, engine.name, engine.version()], answer)
                agree = sum(a[:len(r)] == r != [] for a, r in zip(answers, right, strict=True))
                counts = agree >= SHARE * sure
                reason = '' if counts else f'its text agrees with the reference for {agree} of {sure} prompts'
            except Exception as e:
                agree, counts, reason = 0, False, reason_of(e)
            self.lines.note('agreement', 'agreement', engine=engine.name, file=name, agree=agree, of=sure, agrees=counts,
                            reason=reason)
            if counts:
                counting.append(engine)
            else:
                engine.close()
        return counting

    # ---- rounds ----

    def rounds(self, part, name, engines, n, trying, measure):
        """measure(engine, settings, number, points) gives (point, rate, more) of each point, or of those, n times in
        turns; trying(engine, number) are the settings, none when it is left out."""
        best = {}  # engine's name and point -> rate, settings and point of the first round
        failed = set()
        for number in range(1, n + 1):
            for engine in engines if number % 2 else engines[::-1]:
                for settings in trying(engine, number):
                    points = None if number == 1 else [
                        point for (who, _), (_, had, point) in best.items() if (who, had) == (engine.name, settings)]
                    if points == [] or (engine, settings) in failed:
                        continue
                    begin = time.monotonic()
                    try:
                        for point, rate, more in measure(engine, settings, number, points):
                            self.lines.note(part, **point, engine=engine.name, file=name, threads=self.args.threads,
                                            round=number, settings=settings, kv_type=engine.kv_type(settings), **more)
                            key = (engine.name, json.dumps(point))
                            if number == 1 and rate > best.get(key, (0,))[0]:
                                best[key] = (rate, settings, point)
                    except Exception as e:
                        failed.add((engine, settings))
                        self.lines.note(part, 'failed', engine=engine.name, file=name, settings=settings, reason=reason_of(e))
                    print(f'{name}, {part}, round {number}: {engine.name} {settings}, {time.monotonic() - begin:.1f} s', file=sys.stderr)

    def speed(self, part, name, engines, group):
        def trying(engine, number):
            if (number > 1 and engine.name not in group.later) or (engine.name == KV8 and not group.kv8):
                return []
            if not group.builds and engine not in self.better(name, engines):
                return []
            return engine.settings(group.kind, group.few)

        def measure(engine, settings, number, points):
            for point, rate, more in engine.speed(group.only(points) if points else group, settings):
                yield point, rate, {'tokens_per_second': rate, **more}
            if engine.name in OWN:
                self.lines.note(part, 'limits', file=name, round=number, **engine.limits)
        self.rounds(part, name, engines, self.args.rounds or group.rounds, trying, measure)

    def better(self, name, engines):
        """Without the builds of llama.cpp that another one outdid in prefill: on this file, else on any."""
        here, all_files = ({who: max(rates) for who, rates in self.rates(file, 'prefill', 'tokens_per_second').items() if who in LLAMAS}
                           for file in (name, None))
        fastest = here or all_files
        return [e for e in engines if e.name not in fastest or fastest[e.name] == max(fastest.values())]

    def table(self, name, engines, rows, n, trying):
        def measure(engine, settings, number, _):
            prompts = table_rows(rows, f'Round {number} of {rows} rows. ')
            total, shared = self.count(engine.model, prompts)
            if number == 1 or engine.name not in OWN:  # ours lives on, and uses what it has touched again
                touch_memory()
            table = engine.table(prompts, ROW_TOKENS, settings)
            if table.prompt_tokens != total:
                raise Failed(f'its prompts had {table.prompt_tokens} tokens, not {total} as those of {OURS}')
            rate = rows / table.seconds
            more = {'rows_per_second': rate, 'prompt_tokens': total, 'shared_tokens': shared}
            if table.cpu:
                tokens = (total - (rows - 1) * shared) / rows + ROW_TOKENS
                more.update(cpu_seconds=table.cpu, **self.table_roof(name, engine, tokens * rate))
            through = 'engine' if 'slots' not in settings else 'server'
            yield {'what': 'table', 'rows': rows, 'through': through}, rate, more
        self.rounds('workload', name, self.better(name, engines), n, trying, measure)

    def count(self, model, prompts):
        key = (model, prompts[0], len(prompts))
        if key not in self.counted:
            self.counted[key] = Ours(self.args.engine, model, self.args.threads).count(prompts)
        return self.counted[key]

    def table_roof(self, name, engine, rate):
        """The part of the roofline at so many tokens/s, if every token cost what one of a prompt of 512 must."""
        speed, part = (self.rates(name, 'prefill', key).get(engine.name) for key in ('tokens_per_second', 'roofline_fraction'))
        if not part:
            return {}
        return {'roofline_fraction': rate * statistics.median(part) / statistics.median(speed)}

    def table_trials(self, name, engines):
        """Few rows once, to find the settings and the file at which llama.cpp is best."""
        many = name == TABLE_FILE and not self.args.quick
        self.table(name, engines, 64, 1, lambda engine, number: engine.settings('table', not many))
        if many:
            best = self.best_settings(name)
            self.table(name, engines, 16, 1, lambda engine, number: best(engine, number) + [LLAMA_KV8] * (engine.name in LLAMAS))

    def best_settings(self, name):
        """What table() tries: the settings that were best with 64 rows, else the usual ones."""
        results = Results(self.lines.lines)

        def trying(engine, _):
            had = results.found(name, 'table of 64 rows', engine.name)
            return [had[0]['settings']] if had else engine.settings('table', True)[:1]
        return trying

    def table_finals(self, models):
        """Many rows in turns: on the file that OpenVINO and we are fastest on, and on that of llama.cpp's best."""
        trials = Results(self.lines.lines).tables(self.counting, LLAMAS)
        best = trials[0][2:] if trials else (TABLE_FILE, '')
        for name in dict.fromkeys([TABLE_FILE, best[0]]):
            if name not in self.counting:
                continue
            every = self.engines(name, models[name])
            wanted = set(OWN) | ({'openvino'} if name == TABLE_FILE else set()) | ({best[1]} if name == best[0] else set())
            engines = [e for e in (*every[0], *every[1]) if e.name in wanted & set(self.counting[name])]
            try:
                self.table(name, engines, self.args.rows or 256, self.args.rounds or 5, self.best_settings(name))
            finally:
                for engine in engines:
                    engine.close()

    # ---- a file ----

    def engines(self, name, model):
        """Ours, and the peers."""
        args = self.args
        kv8 = name in KV8_TABLES or any(g.kv8 for every in groups(name, args.quick).values() for g in every)
        peers = [Llama(args.llama, library, build, model, args.threads)
                 for build, library in (b.split('=', 1) for b in args.build)]
        if args.openvino:
            peers.append(OpenVino(args.openvino, model, args.threads))
        return [Ours(args.engine, model, args.threads, kv) for kv in (('f16', 'int8') if kv8 else ('f16',))], peers

    def file(self, name, model):
        own, peers = self.engines(name, model)
        parts = self.args.parts
        begin = time.monotonic()
        try:
            self.lines.forget('agreement', name)
            engines = self.agreeing(name, own, peers) if peers else own
            self.counting[name] = [engine.name for engine in engines]
            for part, every in groups(name, self.args.quick).items():
                if part in parts:
                    self.lines.forget(part, name)
                    for group in every:
                        self.speed(part, name, engines, group)
            if 'workload' in parts and name.startswith('smollm2'):
                self.lines.forget('workload', name)
                self.table_trials(name, engines)
        finally:
            for engine in (*own, *peers):
                engine.close()
            print(f'{name}: {time.monotonic() - begin:.0f} s', file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description='see scripts/bench')
    parser.add_argument('--engine', required=True)
    parser.add_argument('--cache', required=True, help='folder of files that are kept')
    parser.add_argument('--llama', help="folder of llama.cpp's programs")
    parser.add_argument('--build', action='append', default=[], help='NAME=FOLDER of libraries of a build of it')
    parser.add_argument('--openvino', help="folder of OpenVINO's packages")
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--rounds', type=int, help='of each measurement')
    parser.add_argument('--rows', type=int, help='of the table')
    parser.add_argument('--out', required=True)
    parser.add_argument('--parts', type=lambda s: s.split(','), default=['speed', 'batch', 'workload'])
    parser.add_argument('files', nargs='+', metavar='NAME=PATH')
    args = parser.parse_args()
    bench = Bench(args)
    bench.lines.forget('machine')
    bench.lines.note('machine', 'machine', **machine(args.engine, args.openvino))
    models = dict(f.split('=', 1) for f in args.files)
    for name, model in models.items():
        try:
            bench.file(name, model)
        except Exception as e:
            bench.lines.note('agreement', 'failed', engine=OURS, file=name, settings='', reason=reason_of(e))
    if 'workload' in args.parts and not args.quick:
        begin = time.monotonic()
        bench.table_finals(models)
        print(f'tables: {time.monotonic() - begin:.0f} s', file=sys.stderr)
    return 1 if any(line['what'] == 'failed' and line['engine'] in OWN for line in bench.lines.lines) else 0


if __name__ == '__main__':
    sys.exit(main())
