"""bench_engines.py - the engines of the bench behind one face: ours, llama.cpp, OpenVINO GenAI.

An engine opens on one file, and does
    first_tokens(prompts, n)     the n likeliest tokens after each list of ids
    speed(group, settings)       rates of a group of measurements, one (point, tokens per second, more) each
    table(rows, n, settings)     a Table: n tokens for each (system, user), begun together
    kv_type(settings)            how it keeps keys and values, after the above
`settings(kind, few)` are those worth trying; what is no faster is dropped by the caller. Whatever an engine raises means
that it failed, and nothing waits for one longer than PATIENCE seconds.
"""
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field, replace

from bench_prompts import chat_text, random_ids
from bench_results import KV8, NAMES, OURS

PATIENCE = 240


class Failed(Exception):
    """An engine did not do it; the text says why."""


@dataclass
class Group:
    """What one start of an engine measures: prefills, and every batch at every depth."""
    prompts: list = field(default_factory=list)
    batches: list = field(default_factory=list)
    depths: list = field(default_factory=list)
    kind: str = 'single'  # 'apart' or 'shared': a batch whose sequences have the same tokens before them or have not
    tokens: int = 32
    rounds: int = 5
    builds: bool = False  # every build of llama.cpp, not only the one that was faster before
    few: bool = False  # only the settings of peers that are best as a rule
    later: tuple = tuple(NAMES)  # who is measured after the first round
    kv8: bool = False  # our engine with 8-bit keys and values too

    def points(self):
        return [{'what': 'prefill', 'prompt': n} for n in self.prompts] + [
            {'what': 'decode', 'batch': b, 'depth': d, 'shared': d if self.kind == 'shared' else 0}
            for d in self.depths for b in self.batches]

    def only(self, points):
        """The group with no more than the prompts, batches and depths of these points."""
        keep = {key: {p[key] for p in points if key in p} for key in ('prompt', 'batch', 'depth')}
        return replace(self, prompts=[n for n in self.prompts if n in keep['prompt']],
                       batches=[n for n in self.batches if n in keep['batch']],
                       depths=[n for n in self.depths if n in keep['depth']])


@dataclass
class Table:
    """What an engine says of a table of rows."""
    seconds: float  # without the loading
    prompt_tokens: int  # of all rows, computed or cached
    cpu: float = None  # seconds of CPU time, where it tells


def listed(values):
    return ','.join(map(str, values)) or '0'


def done(argv, **more):
    """Standard output of a command that must succeed."""
    try:
        run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                             timeout=PATIENCE, **more)
    except subprocess.TimeoutExpired as e:
        raise Failed(f'{os.path.basename(argv[0])} was not ready after {PATIENCE} seconds') from e
    if run.returncode != 0:
        lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
        why = f'signal {-run.returncode}' if run.returncode < 0 else '; '.join(lines[-2:]) or f'status {run.returncode}'
        raise Failed(f'{os.path.basename(argv[0])}: {why}')
    return run


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{')]


def chat_prompt(row, tokens):
    """For `run --jsonl`, through the chat template of the file."""
    system, user = row
    return {'system': system, 'prompt': user, 'max_tokens': tokens}


class Ours:
    """With one type of keys and values."""

    def __init__(self, program, model, threads, kv_type='f16', kv_memory=0):
        self.program, self.model, self.threads, self.kv = program, model, threads, kv_type
        self.kv_memory = ['--kv-memory', str(kv_memory)] if kv_memory else []
        self.name = OURS if kv_type == 'f16' else KV8
        self.limits = {}  # of the machine, beside the last speed
        self.process = None  # which runs one table after the other

    def kv_type(self, settings):
        return self.kv

    def argv(self, command, *options):
        return [self.program, command, '--model', self.model, '--threads', str(self.threads), '--kv-type', self.kv, *options]

    def settings(self, kind, few):
        return ['']

    def run(self, prompts, *options):
        with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
            for prompt in prompts:
                f.write(json.dumps(prompt) + '\n')
            f.flush()
            return done(self.argv('run', '--jsonl', f.name, '--temperature', '0', '--ignore-eos', *options))

    def count(self, rows):
        """How many tokens the prompts of (system, user) rows have together, and how many of them all begin with."""
        prompts = [chat_prompt(row, 0) for row in rows]
        total = sum(line['prompt_tokens'] for line in json_lines(self.run(prompts).stdout))
        first = json_lines(self.run(prompts[:2], '--max-tokens', '1', '--prompt-logprobs').stdout)  # differ where all do
        return total, len(os.path.commonprefix([[token[0][0] for token in line['prompt_logprobs']] for line in first]))

    def tokenize(self, texts):
        run = self.run([{'prompt': text, 'raw': True} for text in texts], '--tokenize')
        return [line['tokens'] for line in json_lines(run.stdout)]

    def first_tokens(self, prompts, n):
        return [line['tokens'] for line in json_lines(self.run([{'ids': ids} for ids in prompts], '--max-tokens', str(n)).stdout)]

    def sure_tokens(self, prompts, n, gap):
        """The first n tokens of each as far as each is likelier than every other by e^gap."""
        run = self.run([{'ids': ids} for ids in prompts], '--max-tokens', str(n), '--logprobs', '2')
        return [[step[0][0] for step in itertools.takewhile(lambda step: step[1][1] - step[2][1] >= gap, line['logprobs'])]
                for line in json_lines(run.stdout)]

    def speed(self, group, settings):
        argv = ['--reps', '1', '--prompt-tokens', listed(group.prompts), '--batch', listed(group.batches),
                '--depth', listed(group.depths), '--gen-tokens', str(group.tokens + 8)]
        if group.kind == 'shared':
            argv += ['--shared', listed(group.depths)]
        run = done(self.argv('bench', '--json', *argv))
        report = json.loads(run.stdout)
        self.limits = {key: value for key, value in report.items() if 'bandwidth' in key or '_ops' in key}
        if 'other processes take the cores' in run.stderr:
            self.limits['disturbed'] = True
        for point, phase in zip(group.points(), report['phases'], strict=True):
            more = {key: phase[key] for key in ('bandwidth_fraction', 'weights_fraction', 'int8_fraction', 'roofline_fraction')}
            more['median_bandwidth_fraction'] = phase['bandwidth_fraction'] * report['read_bandwidth'] / report['read_bandwidth_median']
            yield point, phase['tokens_per_second'], more

    def start(self):
        """The process that runs one table after the other."""
        self.process = subprocess.Popen(self.argv('run', '--jsonl', '-', '--temperature', '0', '--ignore-eos', *self.kv_memory), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def table(self, rows, tokens, settings):
        """The process goes on to the next table, as those of peers do: the memory that it has touched stays its own."""
        if self.process is None:
            self.start()
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            for row in rows:
                self.process.stdin.write(json.dumps(chat_prompt(row, tokens)) + '\n')
            self.process.stdin.write('\n')
            self.process.stdin.flush()
            said = ''
            for line in self.process.stderr:
                found = re.search(r'(\d+) prompt tokens .*, (\d+) tokens in ([\d.]+) s, ([\d.]+) s of CPU time', line)
                if found:
                    if int(found[2]) != len(rows) * tokens:
                        raise Failed(f'{self.name} gave {found[2]} tokens')
                    return Table(float(found[3]), int(found[1]), float(found[4]))
                said = line.strip()
        except OSError as e:
            said = str(e)
        finally:
            timer.cancel()
        raise Failed(f'{self.name} ended with status {self.close()}: {said}')

    def close(self):
        """Its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        with contextlib.suppress(OSError):  # what it did not read
            process.stdin.close()
        process.stderr.close()
        return process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    """llama-server on a port of its own, until the block ends."""

    def __init__(self, argv, env):
        self.port = free_port()
        self.process = subprocess.Popen([*argv, '--host', '127.0.0.1', '--port', str(self.port)], env=env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            try:
                with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/health', timeout=5):
                    return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise Failed(f'llama-server did not start: status {self.process.returncode}')

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, prompt, tokens):
        body = {'prompt': prompt, 'n_predict': tokens, 'temperature': 0, 'ignore_eos': True, 'cache_prompt': True,
                'return_tokens': True}
        request = urllib.request.Request(f'http://127.0.0.1:{self.port}/completion', json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except OSError as e:
            raise Failed(f'llama-server: {e}') from e


class Llama:
    """One build of llama.cpp: `folder` holds its programs, `library` the libraries of the variant."""
    context = 512  # of a slot

    def __init__(self, folder, library, name, model, threads):
        self.folder, self.library, self.name, self.model, self.threads = folder, library, name, model, threads
        self.env = {**os.environ, 'LD_LIBRARY_PATH': f'{library}:{folder}'}

    def settings(self, kind, few):
        if kind == 'table':
            return ['32 by hand'] if few else ['8 slots', '16 by hand', '32 by hand']
        if kind == 'shared':
            return ['flash attention on, one KV']
        return ['flash attention on'] if few else ['flash attention on', 'flash attention off']

    def kv_type(self, settings):
        return 'q8_0' if 'q8_0 KV' in settings else 'f16'

    def version(self):
        """What changes when it is built again."""
        return os.path.getmtime(os.path.join(self.library, 'libggml-cpu.so'))

    def program(self, name):
        return [os.path.join(self.folder, name), '-m', self.model, '-t', str(self.threads)]

    def server(self, slots):
        return Server([*self.program('llama-server'), '-np', str(slots), '-c', str(self.context * slots), '-no-kvu',
                       '-fa', 'on', '--cache-ram', '0'], self.env)

    def first_tokens(self, prompts, n):
        with self.server(1) as server:
            return [server.ask(ids, n)['tokens'] for ids in prompts]

    def speed(self, group, settings):
        attention = 'on' if 'attention on' in settings else 'off'
        if group.kind == 'single':
            yield from self.single(group, attention)
        else:
            yield from self.batched(group, attention, settings)

    def single(self, group, attention):
        """Before the prompts comes one that does not count, instead of each once without the clock."""
        argv = [*self.program('llama-bench'), '-r', '1', '-o', 'jsonl', '-fa', str(int(attention == 'on'))]
        lines = []
        if group.prompts:
            warm = [*argv, '--no-warmup', '-p', listed([512, *group.prompts]), '-n', '0']
            lines += json_lines(done(warm, env=self.env).stdout)[1:]
        if group.depths:
            decode = [*argv, '-p', '0', '-n', str(group.tokens), '-d', listed(group.depths)]
            lines += json_lines(done(decode, env=self.env).stdout)
        for point, line in zip(group.points(), lines, strict=True):
            yield point, line['avg_ts'], {}

    def batched(self, group, attention, settings):
        """The prompt is computed once. With a split KV each sequence then has a copy of its own, so that this is
        also how prompts that share nothing decode."""
        depth, = group.depths
        argv = [*self.program('llama-batched-bench'), '-npp', str(depth), '-ntg', str(group.tokens), '-npl',
                listed(group.batches), '-pps', '-fa', attention, '-b', '2048',
                '-c', str(max(group.batches) * (depth + group.tokens + 8)),
                '-kvu' if 'one KV' in settings else '-no-kvu', '--output-format', 'jsonl']
        rates = {line['pl']: line['speed_tg'] for line in json_lines(done(argv, env=self.env).stdout)}
        for point in group.points():
            if point['batch'] not in rates:
                raise Failed(f"llama-batched-bench left out {point['batch']} sequences")
            yield point, rates[point['batch']], {}

    def table(self, rows, tokens, settings):
        n = int(settings.split()[0])
        prompts = [chat_text(*row) for row in rows]
        table, answers = self.by_hand(prompts, tokens, n, self.kv_type(settings)) if 'by hand' in settings else self.served(prompts, tokens, n)
        if any(len(a) != tokens for a in answers):
            raise Failed('llama.cpp gave another number of tokens')
        return table

    def served(self, prompts, tokens, slots):
        with self.server(slots) as server, concurrent.futures.ThreadPoolExecutor(slots) as pool:
            begin = time.perf_counter()
            answers = list(pool.map(lambda p: server.ask(p, tokens), prompts))
            seconds = time.perf_counter() - begin
        # the whole prompt, whatever of it was cached
        return Table(seconds, sum(a['tokens_evaluated'] for a in answers)), [a['tokens'] for a in answers]

    def by_hand(self, prompts, tokens, sequences, kv_type):
        """The library, with what all prompts begin with computed once and handed to `sequences` at a time."""
        argv = [os.path.join(self.folder, 'llama-rows'), self.model, str(self.threads), str(sequences), 'one', kv_type,
                str(tokens)]
        answer = json.loads(done(argv, env=self.env, input=''.join(p + '\0' for p in prompts)).stdout)
        return Table(answer['seconds'], answer['prompt_tokens']), answer['tokens']

    def close(self):
        pass


class OpenVino:
    name = 'openvino'
    sequences = 64

    def __init__(self, packages, model, threads):
        self.packages, self.model, self.threads = packages, model, threads
        self.workers = {}
        self.kv = ''  # what a worker said
        self.seed = 0

    def kv_type(self, settings):
        return self.kv

    def settings(self, kind, few):
        return [f'{n} tokens in a step' for n in ((2048,) if few or kind != 'table' else (2048, 512))]

    def version(self):
        return os.path.getmtime(os.path.join(self.packages, 'openvino_genai'))

    def worker(self, settings):
        if settings not in self.workers:
            argv = [sys.executable, os.path.join(os.path.dirname(__file__), 'openvino_worker.py'), self.model,
                    str(self.threads), settings.split()[0], str(self.sequences), '1']
            self.workers[settings] = subprocess.Popen(argv, env={**os.environ, 'PYTHONPATH': self.packages}, text=True,
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                      stderr=subprocess.DEVNULL)
            self.kv = self.answer(settings)['kv_type']
            self.generate(settings, [random_ids(64, 0)], 4)
        return self.workers[settings]

    def answer(self, settings):
        timer = threading.Timer(PATIENCE, self.workers[settings].kill)
        timer.start()
        line = self.workers[settings].stdout.readline()
        timer.cancel()
        if not line:
            status = self.workers.pop(settings).wait()
            raise Failed(f'OpenVINO GenAI ended with status {status}')
        return json.loads(line)

    def generate(self, settings, prompts, tokens, lead=False):
        worker = self.worker(settings)
        worker.stdin.write(json.dumps({'prompts': prompts, 'tokens': tokens, 'lead': lead}) + '\n')
        worker.stdin.flush()
        return self.answer(settings)

    def first_tokens(self, prompts, n):
        return self.generate(self.settings('', True)[0], prompts, n)['tokens']

    def speed(self, group, settings):
        for point in group.points():
            yield point, self.rate(group, point, settings), {}

    def rate(self, group, point, settings):
        if point['what'] == 'prefill':
            self.seed += 1
            return point['prompt'] / self.generate(settings, [random_ids(point['prompt'], self.seed)], 1)['first']
        # depth 0 is that of a few tokens: some must be there; from the second time on prompts are in the cache
        prompts = [random_ids(max(point['depth'], 8), 10**6 + (0 if group.kind == 'shared' else i)) for i in range(point['batch'])]
        for i, ids in enumerate(prompts):
            ids[-1] = 1000 + i  # a token of its own
        self.generate(settings, prompts, 1, lead=group.kind == 'shared')
        answer = self.generate(settings, prompts, group.tokens)
        if answer['late'] <= 0:
            raise Failed('OpenVINO GenAI did not run all sequences together')
        return answer['late'] / (answer['seconds'] - answer['first'])

    def table(self, rows, tokens, settings):
        answer = self.generate(settings, [chat_text(*row) for row in rows], tokens, lead=True)
        if any(len(a) != tokens for a in answer['tokens']):
            raise Failed('OpenVINO GenAI gave another number of tokens')
        return Table(answer['seconds'], answer['prompt_tokens'])

    def close(self):
        for worker in self.workers.values():
            worker.stdin.close()
            worker.wait()
        self.workers.clear()
