#!/usr/bin/env python3
"""bench_sql.py - the table's prompts through SELECT llm_generate and through the bare engine, both at once.

scripts/bench calls it with an instance that runs. Each side has half of the threads and asks one table after the other, each
under an instruction of its own, whose prefix nobody finds in the cache, until both have done all rounds. So a slower minute
hits both; and as a core is slow, too, when its other half works for a neighbour, the engines swap cores four times a second.
Engines and session live through all of it, with the model loaded and as much memory for keys and values; a few rows before
all do not count. Both sides ask through the chat template, and must say that their prompts had as many tokens. What counts is
the time on a CPU of all processes of a side: of the backend, the server's engine and the supervisor, or of the bare engine;
as the median of the ratios of the rounds.
"""
import argparse
import concurrent.futures
import contextlib
import csv
import glob
import os
import statistics
import subprocess
import threading
import time

import bench_lines
from bench_engines import PATIENCE, Failed, Ours
from bench_machine import touch_memory
from bench_prompts import table_rows
from bench_results import interval

TOKENS = 16
WARM_ROWS = 96  # before all, so that both have touched their memory
SWAP = 0.25  # seconds
LONGEST = 130  # seconds; then what both sides have done counts


def cpu_seconds(pid):
    """Of all its threads, exactly."""
    nanoseconds = 0
    for path in glob.glob(f'/proc/{pid}/task/*/schedstat'):
        with open(path, encoding='ascii') as f:
            nanoseconds += int(f.read().split()[0])
    return nanoseconds / 1e9


class Session:
    """psql with one session."""

    def __init__(self, args):
        argv = [args.psql, '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-h', os.path.join(args.work, 'socket'), '-U', 'postgres']
        self.rows = args.rows
        self.process = subprocess.Popen(argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        prompts = os.path.join(args.work, 'prompts.csv')
        with open(prompts, 'w', newline='', encoding='utf-8') as f:
            csv.writer(f).writerows([n, *row] for n in range(2 * args.rounds + 2) for row in rows_of(n, args.rows))
        self.ask(f"""
            CREATE EXTENSION llm_infer;
            SELECT llm_model_register('bench', '{os.path.basename(args.model)}') \\g /dev/null
            CREATE TABLE prompts (round int, instruction text, body text);
            \\copy prompts FROM '{prompts}' (FORMAT csv)
            VACUUM ANALYZE prompts;
            SELECT llm_generate('warm', max_tokens => 1) \\g /dev/null""")
        self.pids = dict(line.split('|') for line in self.ask("""
            SELECT 'backend', pg_backend_pid() UNION ALL SELECT 'engine', pid FROM llm.stat_engine
            UNION ALL SELECT 'supervisor', pid FROM pg_stat_activity WHERE backend_type = 'llm_infer supervisor';"""))

    def ask(self, sql):
        """Lines of the answer."""
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(sql + '\n\\echo end\n')
            self.process.stdin.flush()
            lines = []
            for line in self.process.stdout:
                if line == 'end\n':
                    return lines
                lines.append(line.rstrip('\n'))
        finally:
            timer.cancel()
        raise Failed(f'psql ended with status {self.process.wait()}')

    def close(self):
        with contextlib.suppress(OSError):  # it has ended
            self.process.stdin.close()
        self.process.wait()

    def table(self, number):
        answers, = self.ask(f"""SELECT count(llm_generate(body, system_prompt => instruction, max_tokens => {TOKENS},
            temperature => 0, options => '{{"ignore_eos": true}}')) FROM prompts WHERE round = {number};""")
        if int(answers) != len(rows_of(number, self.rows)):
            raise Failed(f'{answers} answers to the prompts of round {number}')

    def prompt_tokens(self):
        """Of all that was asked."""
        return int(self.ask('SELECT sum(prompt_tokens) FROM llm.stat_users;')[0])


class Bare:
    """A process of the engine."""

    def __init__(self, args):
        self.rows = args.rows
        self.engine = Ours(args.engine, args.model, args.threads, kv_memory=args.kv_memory)
        self.engine.start()
        self.pids = {'engine': self.engine.process.pid}
        self.asked = 0

    def table(self, number):
        self.asked += self.engine.table(rows_of(number, self.rows), TOKENS, '').prompt_tokens

    def prompt_tokens(self):
        """Of all that was asked."""
        return self.asked

    def close(self):
        self.engine.close()


def rows_of(number, rows):
    """Of a table; of number 0 the few that come before all."""
    return table_rows(rows if number else WARM_ROWS, f'Round {number}. ')


class Side:
    """Tables one after the other, in a thread."""

    def __init__(self, name, asker):
        self.name, self.asker, self.pids = name, asker, asker.pids
        self.rounds = []  # (seconds, CPU seconds of each process) of each
        self.prompt_tokens = []  # of each

    def run(self, is_enough, over):
        try:
            self.tables(is_enough)
        except BaseException:
            over.set()  # the other side does not go on alone
            raise

    def tables(self, is_enough):
        self.asker.table(0)
        number = 0
        while not is_enough():
            number += 1
            asked, begin, before = self.asker.prompt_tokens(), time.monotonic(), self.cpu()
            self.asker.table(number)
            self.rounds.append((time.monotonic() - begin, {who: cpu - before[who] for who, cpu in self.cpu().items()}))
            self.prompt_tokens.append(self.asker.prompt_tokens() - asked)

    def cpu(self):
        return {who: cpu_seconds(pid) for who, pid in self.pids.items()}


def swap_cores(sides, until):
    """Each engine has one half of the cores, then the other."""
    cores = sorted(os.sched_getaffinity(0))
    halves = [cores[0::2], cores[1::2] or cores]
    while not until.wait(SWAP):
        halves.reverse()
        for side, half in zip(sides, halves):
            with contextlib.suppress(FileNotFoundError):
                for task in os.listdir(f"/proc/{side.pids['engine']}/task"):
                    with contextlib.suppress(ProcessLookupError):  # a thread that has ended
                        os.sched_setaffinity(int(task), half)


def run_both(sides, rounds):
    end = time.monotonic() + LONGEST
    over = threading.Event()

    def is_enough():
        done = min(len(side.rounds) for side in sides)
        return over.is_set() or done >= rounds or (done > 0 and time.monotonic() > end)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        swap = pool.submit(swap_cores, sides, over)
        try:
            for future in [pool.submit(side.run, is_enough, over) for side in sides]:
                future.result()
        finally:
            over.set()
        swap.result()
    done = min(len(side.rounds) for side in sides)
    for side in sides:
        del side.rounds[done:], side.prompt_tokens[done:]  # what the faster side did besides
    sql, engine = (side.prompt_tokens for side in sides)
    if sql != engine:
        raise Failed(f'the prompts of the tables had {sql} tokens through SQL, {engine} of the bare engine')
    return done


def show(sides, rows, rounds):
    print(f'medians of {rounds} tables of {rows} rows, both sides at once')
    for side in sides:
        print(f'{side.name:8}{rows / statistics.median(seconds for seconds, _ in side.rounds):8.2f} rows/s, CPU ms per row: ' + ', '.join(
            f'{who} {1e3 * statistics.median(cpu[who] for _, cpu in side.rounds) / rows:.2f}' for who in side.pids))
    sql, engine = ([sum(cpu.values()) for _, cpu in side.rounds] for side in sides)
    costs = [100 * (s / e - 1) for s, e in zip(sql, engine)]
    low, high = interval(costs)
    print(f'SQL takes {statistics.median(costs):+.2f}% CPU time more than the bare engine (95%: {low:+.2f} to {high:+.2f};'
          f' rounds {min(costs):+.1f} to {max(costs):+.1f})')


def main():
    parser = argparse.ArgumentParser(description='see scripts/bench')
    for name in 'engine', 'model', 'psql', 'work', 'out':
        parser.add_argument('--' + name, required=True)
    for name in 'threads', 'rows', 'rounds', 'kv-memory':
        parser.add_argument('--' + name, type=int, required=True)
    args = parser.parse_args()
    touch_memory()
    session, bare = Session(args), Bare(args)
    sides = [Side('sql', session), Side('engine', bare)]
    try:
        rounds = run_both(sides, args.rounds)
    finally:
        bare.close()
        session.close()
    lines = bench_lines.Lines(args.out)
    lines.forget('sql')
    for side in sides:
        for number, ((seconds, cpu), prompt_tokens) in enumerate(zip(side.rounds, side.prompt_tokens), 1):
            lines.note('sql', 'table', engine='llm_infer', file='smollm2-q4_1', threads=args.threads, round=number,
                       rows=args.rows, through=side.name, settings='', rows_per_second=args.rows / seconds,
                       prompt_tokens=prompt_tokens, cpu_seconds=sum(cpu.values()), cpu_of=cpu)
    show(sides, args.rows, rounds)


if __name__ == '__main__':
    main()
