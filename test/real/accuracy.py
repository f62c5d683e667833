#!/usr/bin/python3
"""accuracy.py ENGINE MODEL [--tokens N] [--kv-types LIST] [--window N] [--file NAME] [--out FILE] [--bounds]

Perplexity of the documents of this repository by the engine, beside that of reference.py from the same file's dequantised weights:
its rise is what int8 activations and rounded keys and values cost; the quantisation of the weights is in both. Windows of
N tokens (512) stand alone. KL is the mean divergence of the engine's distribution from the reference's, in nats; greedy
agreement the share of positions with the same likeliest token. --out appends JSON lines as docs/benchmarks.md says. --bounds fails when
the rise is over 0.5% plus two standard errors, KL over 0.01, or agreement below 90%.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from reference import Reference

ROWS = 32  # of logits that are compared at once
ROOT = os.path.join(os.path.dirname(__file__), '..', '..')


def tokens(engine, model, n):
    """The first n tokens of the documents; not of that which holds results."""
    text = ''
    for path in sorted(glob.glob(os.path.join(ROOT, 'docs', '*.md'))):
        if path.endswith('benchmarks.md'):
            continue
        with open(path, encoding='utf-8') as f:
            text += f.read()
    request = json.dumps({'prompt': text[:8 * n]}) + '\n'
    out = subprocess.run([engine, 'run', '--model', model, '--tokenize', '--jsonl', '/dev/stdin'], input=request,
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    ids = json.loads(out)['tokens'][:n]
    assert len(ids) == n, f'the documents have {len(ids)} tokens only'
    return ids


def engine_logits(engine, model, kv_type, ids):
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, 'logits')
        subprocess.run([engine, 'run', '--model', model, '--kv-type', kv_type, '--prompt-ids', ','.join(map(str, ids)),
                        '--max-tokens', '1', '--temperature', '0', '--kv-memory', '256', '--dump-logits', dump, '--dump-all'],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return np.fromfile(dump, '<f4').reshape(len(ids), -1)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)


def compare(reference, logits, ids):
    """Per predicted token: loss of the reference and of the engine, divergence, same likeliest token."""
    parts = []
    for i in range(0, len(ids) - 1, ROWS):  # few at a time, whose memory is used again
        n = min(ROWS, len(ids) - 1 - i)
        p, q = log_softmax(reference[i:i + n]), log_softmax(logits[i:i + n])
        at = np.arange(n), np.array(ids[i + 1:i + 1 + n])
        parts.append(np.stack([-p[at], -q[at], (np.exp(p) * (p - q)).sum(axis=1, dtype=np.float64), p.argmax(1) == q.argmax(1)]))
    return np.concatenate(parts, axis=1)


def main():
    args = argparse.ArgumentParser()
    args.add_argument('engine')
    args.add_argument('model')
    args.add_argument('--tokens', type=int, default=4096)
    args.add_argument('--window', type=int, default=512)
    args.add_argument('--kv-types', default='f16,int8,f32')
    args.add_argument('--file', default='')
    args.add_argument('--out')
    args.add_argument('--bounds', action='store_true')
    a = args.parse_args()
    ids = tokens(a.engine, a.model, a.tokens)
    windows = [ids[i:i + a.window] for i in range(0, len(ids), a.window)]
    reference = Reference(a.model)
    found = {kv_type: [] for kv_type in a.kv_types.split(',')}
    for window in windows:
        expected = reference.logits(window)
        for kv_type, parts in found.items():
            parts.append(compare(expected, engine_logits(a.engine, a.model, kv_type, window), window))
    ok = True
    for kv_type, parts in found.items():
        ref, ours, kl, same = np.concatenate(parts, axis=1).astype(np.float64)
        rise, error = np.expm1((ours - ref).mean()), (ours - ref).std() / len(ref) ** 0.5
        print(f'{a.file or os.path.basename(a.model)}, {kv_type} KV, {len(ref)} tokens: perplexity {np.exp(ours.mean()):.3f},'
              f' reference {np.exp(ref.mean()):.3f} ({100 * rise:+.2f}% +- {100 * error:.2f}), KL {kl.mean():.5f},'
              f' greedy agreement {100 * same.mean():.2f}%')
        ok = ok and rise < 0.005 + 2 * error and kl.mean() < 0.01 and same.mean() > 0.9
        if a.out:
            with open(a.out, 'a') as f:
                f.write(json.dumps({'part': 'accuracy', 'what': 'accuracy', 'engine': 'llm_infer', 'file': a.file or os.path.basename(a.model),
                                    'kv_type': kv_type, 'tokens': len(ref), 'perplexity': np.exp(ours.mean()),
                                    'reference_perplexity': np.exp(ref.mean()), 'rise_error': error, 'kl': kl.mean(),
                                    'greedy_agreement': same.mean()}) + '\n')
    return 0 if ok or not a.bounds else 1


if __name__ == '__main__':
    sys.exit(main())
