#!/usr/bin/env python3
"""openvino_worker.py - OpenVINO GenAI's continuous batching, one command per line of standard input.

usage: openvino_worker.py MODEL THREADS BATCH_TOKENS SEQUENCES PREFIX_CACHE(0|1)

A command is a JSON object {"prompts": [text or list of ids, ...], "tokens": N, "lead": bool}: generate N tokens for
each prompt, the likeliest each time and end tokens ignored; with lead the first prompt alone before the others, so
that they find its prefix cached. The answer is a line {"seconds", "first", "late", "prompt_tokens", "tokens"}: all the time,
that until each prompt had a token, how many tokens came after that, those of all prompts, and the ids. Before the first command comes a line {"kv_type"}:
what the compiled model says of the precision of its keys and values.
"""
import ctypes
import json
import os
import re
import sys
import tempfile
import time

import numpy
import openvino
import openvino_genai

CACHE_GB = 2


def pipeline_open(model, threads, batch_tokens, sequences, prefix_cache):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.enable_prefix_caching = prefix_cache
    scheduler.max_num_batched_tokens = batch_tokens
    scheduler.max_num_seqs = sequences
    return openvino_genai.ContinuousBatchingPipeline(model, scheduler, 'CPU', {'INFERENCE_NUM_THREADS': threads}, {})


def told(make):
    """What make() returns, and what it logs to standard output: the only way to the properties of its compiled model."""
    with tempfile.TemporaryFile('w+', errors='replace') as log:
        before = os.dup(1)
        os.dup2(log.fileno(), 1)
        os.environ['OPENVINO_LOG_LEVEL'] = '3'
        try:
            made = make()
        finally:
            del os.environ['OPENVINO_LOG_LEVEL']
            ctypes.CDLL(None).fflush(None)
            os.dup2(before, 1)
            os.close(before)
        log.seek(0)
        return made, log.read()


def kv_type_of(log):
    """Of the model with paged attention, which is told of last: u8, or that of keys and that of values; '' when unknown."""
    found = [re.findall(rf'{what}_CACHE_PRECISION: (\w+)', log)[-1:] for what in ('KEY', 'VALUE')]
    return '/'.join(dict.fromkeys(kind[0] for kind in found if kind))


def config_of(tokens):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = tokens
    config.ignore_eos = True
    config.do_sample = False
    config.apply_chat_template = False
    return config


def take(handle):
    """The tokens of one request that were not taken before."""
    ids = []
    while handle.can_read():
        ids += handle.read()[0].generated_ids
    return ids


class Worker:
    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.n_asked = 0

    def ask(self, prompt, tokens):
        self.n_asked += 1
        if not isinstance(prompt, str):
            prompt = openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        return self.pipeline.add_request(self.n_asked, prompt, config_of(tokens))

    def generate(self, prompts, tokens, lead=False):
        got = [[] for _ in prompts]
        handles = []
        first = late = None
        begin = time.perf_counter()
        while len(handles) < len(prompts) or self.pipeline.has_non_finished_requests():
            if not self.pipeline.has_non_finished_requests():
                n = 1 if lead and not handles else len(prompts)
                handles += [self.ask(prompt, tokens) for prompt in prompts[len(handles):n]]
            self.pipeline.step()
            if first is None and len(handles) == len(prompts):
                for ids, handle in zip(got, handles):
                    if not ids:
                        ids += take(handle)
                if all(got):
                    first = time.perf_counter() - begin
                    for ids, handle in zip(got, handles):
                        ids += take(handle)
                    late = len(prompts) * tokens - sum(map(len, got))
        seconds = time.perf_counter() - begin
        for ids, handle in zip(got, handles):
            ids += take(handle)
        prompt_tokens = sum(handle.get_perf_metrics().get_num_input_tokens() for handle in handles)
        return {'seconds': seconds, 'first': first, 'late': late, 'prompt_tokens': prompt_tokens, 'tokens': got}


def main():
    model = sys.argv[1]
    threads, batch_tokens, sequences, prefix_cache = map(int, sys.argv[2:6])
    pipeline, log = told(lambda: pipeline_open(model, threads, batch_tokens, sequences, bool(prefix_cache)))
    worker = Worker(pipeline)
    print(json.dumps({'kv_type': kv_type_of(log)}), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.generate(**json.loads(line))), flush=True)


if __name__ == '__main__':
    main()
