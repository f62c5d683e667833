#!/usr/bin/env python3
"""bench_sql.py - the table's prompts through SELECT llm_generate and through the bare engine, in turns.

scripts/bench calls it with an instance that runs. Each round asks in a database of its own and under an instruction of its own,
whose prefixes nobody else finds in the cache; the model is loaded before the clock starts, on both sides, and the engines live on. What counts is the CPU time of all
processes, and the wall time, as medians of the rounds' ratios.
"""
import argparse
import csv
import os
import statistics

import bench_lines
from bench_engines import Ours, done
from bench_machine import touch_memory
from bench_prompts import table_prompts

TOKENS = 16


class Instance:
    def __init__(self, args):
        self.args = args
        self.psql = [args.psql, '-X', '-q', '-A', '-t', '-F', ' ', '-v', 'ON_ERROR_STOP=1',
                     '-h', os.path.join(args.work, 'socket'), '-U', 'postgres']
        self.prompts = os.path.join(args.work, 'prompts.csv')

    def write(self, prompts):
        with open(self.prompts, 'w', newline='', encoding='utf-8') as f:
            csv.writer(f).writerows([p] for p in prompts)

    def round(self, number, prompts):
        """Seconds of wall and of CPU time."""
        self.write(prompts)
        database = f'round{number}'
        done([*self.psql, '-d', 'postgres', '-c', f'CREATE DATABASE {database}'])
        run = done([*self.psql, '-d', database, '-v', f'rows={self.args.rows}', '-v', f'tokens={TOKENS}',
                    '-v', 'path=' + os.path.basename(self.args.model), '-v', f'prompts={self.prompts}',
                    '-f', os.path.join(self.args.work, 'bench_sql.sql')])
        answers, seconds, cpu = run.stdout.split()[-3:]
        if int(answers) != self.args.rows:
            raise SystemExit(f'{answers} answers to {self.args.rows} prompts')
        return float(seconds), float(cpu)


def main():
    parser = argparse.ArgumentParser(description='see scripts/bench')
    for name in 'engine', 'model', 'psql', 'work', 'out':
        parser.add_argument('--' + name, required=True)
    for name in 'threads', 'rows', 'rounds':
        parser.add_argument('--' + name, type=int, required=True)
    args = parser.parse_args()
    instance, bare = Instance(args), Ours(args.engine, args.model, args.threads)
    sides = {'sql': instance.round, 'engine': lambda number, prompts: bare.table(prompts, TOKENS, '')}
    found = {side: [] for side in sides}
    lines = bench_lines.Lines(args.out)
    lines.forget('sql')
    for number in range(1, args.rounds + 1):
        prompts = table_prompts(args.rows, f'Round {number}. ')
        for side in list(sides)[::1 if number % 2 else -1]:
            if number == 1:
                touch_memory()
            seconds, cpu = sides[side](number, prompts)
            found[side].append((seconds, cpu))
            lines.note('sql', 'table', engine='llm_infer', file='smollm2-q4_1', threads=args.threads, round=number,
                       rows=args.rows, through=side, settings='', rows_per_second=args.rows / seconds, cpu_seconds=cpu)
    bare.close()
    print(f'{"":16}{"rows/s":>10}{"CPU ms/row":>12}   (medians of {args.rounds} rounds, {args.rows} rows)')
    for side, times in found.items():
        print(f'{side:16}{args.rows / statistics.median(t[0] for t in times):10.2f}'
              f'{1e3 * statistics.median(t[1] for t in times) / args.rows:12.2f}')
    for k, what in enumerate(('wall', 'CPU')):
        ratios = [100 * (s[k] / e[k] - 1) for s, e in zip(found['sql'], found['engine'], strict=True)]
        print(f'SQL takes {statistics.median(ratios):+.1f}% {what} time more than the bare engine '
              f'({min(ratios):+.1f} to {max(ratios):+.1f})')


if __name__ == '__main__':
    main()
