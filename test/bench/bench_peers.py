#!/usr/bin/env python3
"""bench_peers.py - our engine beside llama.cpp and OpenVINO GenAI on the same files, interleaved in one run.

scripts/bench calls it, with what it has built and fetched. In every round each engine measures the same points, in an
order that turns round; medians over the rounds count. In the first round a peer tries its settings (flash attention,
one KV or one per sequence, tokens in a step, slots); those that are best at no point are then left out.

Whether an engine's figures count: 64 prompts are given to it as the same token ids, and the first 4 likeliest tokens of
its answer, end tokens ignored, must be the reference's for at least 90% of the prompts, as far as the reference is
sure: up to the first token that is not 1.35 times (0.3 nats) likelier than the next. The reference is our engine on the
same weights written as 32-bit floats, which it multiplies without rounding anything to 8 bits; for the large files with
random weights it is our engine on the file itself, and 16 prompts.
"""
import argparse
import hashlib
import json
import os
import statistics
import sys
import time

import bench_report
from bench_engines import Failed, Group, Llama, OpenVino, Ours, done
from bench_machine import machine
from bench_prompts import short_prompts, table_prompts

N_PROMPTS, N_PROMPTS_LARGE, N_TOKENS, GAP, SHARE = 64, 16, 4, 0.3, 0.9
ROW_TOKENS, ROW_OWN, ROW_SHARED = 16, 68, 354
CURVE = [1, 2, 4, 8, 16, 32, 64]


def groups(name, quick, parts):
    """What is measured on a file: small models at every point, large ones at few."""
    if quick:
        every = {'speed': [Group([512], [1], [0], rounds=2, builds=True)],
                 'batch': [Group(batches=[8, 32], depths=[128], tokens=16, rounds=1)]}
    elif name.startswith('smollm2'):
        batches = CURVE if name == 'smollm2-q8_0' else [8, 32]
        every = {'speed': [Group([128, 512], [1], [0], builds=True), Group([2048], [1], [1024, 4096])],
                 'batch': [Group(batches=batches, depths=[512], shared=shared, tokens=16, reps=2, rounds=3)
                           for shared in (False, True)]}
    else:
        every = {'speed': [Group([512], [1], [0])],
                 'batch': [Group(batches=[8, 32], depths=[512], tokens=16, reps=2, rounds=3, shared=True)]}
    return [group for part in parts for group in every.get(part, [])]


class Bench:
    def __init__(self, args):
        self.args = args
        self.out = open(args.out, 'a', encoding='utf-8')
        self.lines = []

    def note(self, what, **more):
        line = {'what': what, **more}
        self.lines.append(line)
        self.out.write(json.dumps(line) + '\n')
        self.out.flush()

    def rates(self, file, what, key):
        """Engine's name -> what it had under a key of its lines, in order."""
        found = {}
        for line in self.lines:
            if (line.get('file'), line['what']) == (file, what) and key in line:
                found.setdefault(line['engine'], []).append(line[key])
        return found

    # ---- which peers count ----

    def reference(self, ours, name, prompts):
        """The tokens that count as right; kept beside the files, since they never change."""
        if not name.startswith('smollm2'):
            return ours.sure_tokens(prompts, N_TOKENS, GAP)
        facts = json.dumps([prompts, N_TOKENS, GAP, os.path.getsize(ours.model), os.path.basename(ours.model)])
        kept = os.path.join(self.args.cache, f'reference-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json')
        if not os.path.exists(kept):
            whole = os.path.join(self.args.cache, f'reference.{os.getpid()}.gguf')
            try:
                done([os.path.join(self.args.llama, 'llama-quantize'), '--allow-requantize', ours.model, whole, 'F32'])
                tokens = Ours(self.args.engine, whole, self.args.threads).sure_tokens(prompts, N_TOKENS, GAP)
            finally:
                if os.path.exists(whole):
                    os.remove(whole)
            with open(kept + '.part', 'w', encoding='utf-8') as f:
                json.dump(tokens, f)
            os.rename(kept + '.part', kept)
        with open(kept, encoding='utf-8') as f:
            return json.load(f)

    def agreeing(self, name, ours, peers):
        """Those engines whose text is the reference's."""
        prompts = ours.tokenize(short_prompts(N_PROMPTS if name.startswith('smollm2') else N_PROMPTS_LARGE))
        right = self.reference(ours, name, prompts)
        sure = sum(map(bool, right))
        counting = []
        for engine in [ours, *peers]:
            try:
                answers = engine.first_tokens(prompts, N_TOKENS)
                agree = sum(a[:len(r)] == r != [] for a, r in zip(answers, right, strict=True))
                counts = agree >= SHARE * sure
                reason = '' if counts else f'its text agrees with the reference for {agree} of {sure} prompts'
            except Failed as e:
                agree, counts, reason = 0, False, str(e)
            self.note('agreement', engine=engine.name, file=name, agree=agree, of=sure, agrees=counts, reason=reason)
            if counts:
                counting.append(engine)
            elif engine is not ours:
                engine.close()
        return counting

    # ---- rounds ----

    def rounds(self, name, engines, n, kind, measure, builds=False):
        """measure(engine, settings, number) gives (point, rate, more) of each point, n times in turns; without
        builds, of llama.cpp only the better one goes on after the first time."""
        if not builds:
            engines = self.better(name, engines)
        trying = {engine: engine.settings(kind, self.args.quick) for engine in engines}
        best = {}  # engine's name and point: rate and who had it
        for number in range(1, n + 1):
            for engine in engines if number % 2 else engines[::-1]:
                for settings in list(trying[engine]):
                    try:
                        for point, rate, more in measure(engine, settings, number):
                            key = (engine.name, json.dumps(point))
                            best[key] = max(best.get(key, (0,)), (rate, settings))
                            self.note(**point, engine=engine.name, file=name, threads=self.args.threads, round=number,
                                      settings=settings, **more)
                    except Failed as e:
                        trying[engine].remove(settings)
                        self.note('failed', engine=engine.name, file=name, settings=settings, reason=str(e))
            if number == 1:
                for engine in engines:
                    tops = {settings for (who, _), (_, settings) in best.items() if who == engine.name}
                    trying[engine] = [settings for settings in trying[engine] if settings in tops]
                engines = engines if builds else self.better(name, engines)

    def speed(self, name, engines, group):
        def measure(engine, settings, number):
            for point, rate, more in engine.speed(group, settings):
                yield point, rate, {'tokens_per_second': rate, **more}
        self.rounds(name, engines, self.args.rounds or group.rounds, group.kind(), measure, group.builds)

    def better(self, name, engines):
        """Without the builds of llama.cpp that another one outdid in prefill."""
        fastest = {who: max(rates) for who, rates in self.rates(name, 'prefill', 'tokens_per_second').items()
                   if who.startswith('llama.cpp')}
        return [e for e in engines if e.name not in fastest or fastest[e.name] == max(fastest.values())]

    def table(self, name, engines, rows, n):
        def measure(engine, settings, number):
            seconds, cpu = engine.table(table_prompts(rows, f'Round {number}. '), ROW_TOKENS, settings)
            more = {'rows_per_second': rows / seconds}
            if cpu:
                more.update(cpu_seconds=cpu, **self.table_roof(name, rows, rows / seconds))
            through = 'server' if engine.name.startswith('llama.cpp') else 'engine'
            yield {'what': 'table', 'rows': rows, 'through': through}, rows / seconds, more
        self.rounds(name, engines, n, 'table', measure)

    def table_roof(self, name, rows, rate):
        """The part of the roofline, if every token cost what one of a prompt of 512 must."""
        speed, part = (self.rates(name, 'prefill', key).get('llm_infer') for key in ('tokens_per_second', 'roofline_fraction'))
        if not part:
            return {}
        tokens = ROW_OWN + ROW_TOKENS + ROW_SHARED / rows
        return {'roofline_fraction': rate * tokens * statistics.median(part) / statistics.median(speed)}

    # ---- a file ----

    def engines(self, model):
        args = self.args
        peers = [Llama(args.llama, library, build, model, args.threads)
                 for build, library in (b.split('=', 1) for b in args.build)]
        if args.openvino:
            peers.append(OpenVino(args.openvino, model, args.threads))
        return Ours(args.engine, model, args.threads), peers

    def file(self, name, model):
        ours, peers = self.engines(model)
        begin = time.monotonic()
        try:
            try:
                engines = self.agreeing(name, ours, peers) if peers else [ours]
            except Failed as e:
                self.note('failed', engine=ours.name, file=name, settings='', reason=str(e))
                return
            for group in groups(name, self.args.quick, self.args.parts):
                self.speed(name, engines, group)
            if 'workload' in self.args.parts and name.startswith('smollm2'):
                most = name == 'smollm2-q8_0' and not self.args.quick
                usual = [64] if self.args.quick else [16, 64, 256] if most else [256]
                for rows in [self.args.rows] if self.args.rows else usual:
                    self.table(name, engines, rows, self.args.rounds or (3 if most else 1))
        finally:
            for engine in peers:
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
    bench.note('machine', **machine(args.engine, args.openvino))
    for name, model in (f.split('=', 1) for f in args.files):
        bench.file(name, model)
    bench_report.show(bench.lines)


if __name__ == '__main__':
    main()
