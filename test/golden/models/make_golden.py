#!/usr/bin/env python3
"""Reference outputs of small llama models, computed in double precision from the GGUF file alone.

Usage: make_golden.py DIR...   (standard library only; a few seconds per model)

DIR holds model.gguf and golden.json. Of golden.json only the prompts' ids are read; everything else in
it and the pN.logits files are written anew. Nothing is shared with the engine: this is plain textbook
code for one token after the other, so that agreement means something.
"""
import array
import json
import math
import os
import struct
import sys
from operator import mul

N_GREEDY = 32
INT8_MAX = 17  # longest prompt that is also computed from inputs rounded to int8
SCALARS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}


class Gguf:
    """Key-values and dequantised tensors (lists of rows of Python floats) of a GGUF file."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.bytes = f.read()
        self.at = 4
        version, n_tensors, n_kv = self.take('I'), self.take('Q'), self.take('Q')
        if self.bytes[:4] != b'GGUF' or version not in (2, 3):
            raise ValueError(path + ' is not a GGUF file of version 2 or 3')
        self.kv = {}
        for _ in range(n_kv):
            key = self.text()
            self.kv[key] = self.value(self.take('I'))
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take('Q') for _ in range(self.take('I'))]
            infos.append((name, dims, self.take('I'), self.take('Q')))
        align = self.kv.get('general.alignment', 32)
        base = -(-self.at // align) * align
        self.floats = {name for name, _, kind, _ in infos if kind in (0, 1, 30)}
        self.quantised = len(self.floats) < len(infos)
        self.tensors = {name: self.rows(dims, kind, base + offset) for name, dims, kind, offset in infos}

    def take(self, fmt):
        v = struct.unpack_from('<' + fmt, self.bytes, self.at)[0]
        self.at += struct.calcsize('<' + fmt)
        return v

    def text(self):
        n = self.take('Q')
        self.at += n
        return self.bytes[self.at - n:self.at].decode('utf-8', 'replace')

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, n = self.take('I'), self.take('Q')
            return [self.value(item) for _ in range(n)]
        return self.take(SCALARS[kind])

    def rows(self, dims, kind, at):
        cols = dims[0]
        n_rows = math.prod(dims[1:])
        decode, block, nbytes = {0: (self.f32, 1, 4), 1: (self.f16, 1, 2), 2: (self.q4_0, 32, 18),
                                 3: (self.q4_1, 32, 20), 6: (self.q5_0, 32, 22), 7: (self.q5_1, 32, 24),
                                 8: (self.q8_0, 32, 34), 12: (self.q4_k, 256, 144), 13: (self.q5_k, 256, 176),
                                 14: (self.q6_k, 256, 210), 30: (self.bf16, 1, 2)}[kind]
        nbytes *= cols // block
        return [decode(at + i * nbytes, cols) for i in range(n_rows)]

    def f32(self, at, n):
        return list(struct.unpack_from('<%df' % n, self.bytes, at))

    def f16(self, at, n):
        return list(struct.unpack_from('<%de' % n, self.bytes, at))

    def bf16(self, at, n):
        return [struct.unpack('<f', b'\0\0' + self.bytes[p:p + 2])[0] for p in range(at, at + 2 * n, 2)]

    def q8_0(self, at, n):
        out = []
        for p in range(at, at + n // 32 * 34, 34):
            d, *q = struct.unpack_from('<e32b', self.bytes, p)
            out += [d * x for x in q]
        return out

    def q4_0(self, at, n):
        out = []
        for p in range(at, at + n // 32 * 18, 18):
            d, *q = struct.unpack_from('<e16B', self.bytes, p)
            out += [d * ((x & 15) - 8) for x in q] + [d * ((x >> 4) - 8) for x in q]
        return out

    def q4_1(self, at, n):
        out = []
        for p in range(at, at + n // 32 * 20, 20):
            d, m, *q = struct.unpack_from('<ee16B', self.bytes, p)
            out += [d * (x & 15) + m for x in q] + [d * (x >> 4) + m for x in q]
        return out


    def q5_0(self, at, n):
        out = []
        for p in range(at, at + n // 32 * 22, 22):
            d, high, *q = struct.unpack_from('<eI16B', self.bytes, p)
            nibbles = [x & 15 for x in q] + [x >> 4 for x in q]
            out += [d * ((x | (high >> i & 1) << 4) - 16) for i, x in enumerate(nibbles)]
        return out

    def q5_1(self, at, n):
        out = []
        for p in range(at, at + n // 32 * 24, 24):
            d, m, high, *q = struct.unpack_from('<eeI16B', self.bytes, p)
            nibbles = [x & 15 for x in q] + [x >> 4 for x in q]
            out += [d * (x | (high >> i & 1) << 4) + m for i, x in enumerate(nibbles)]
        return out

    def factors(self, at):
        """The 8 scales and 8 minima of 6 bits in 12 bytes."""
        b = self.bytes[at:at + 12]
        scales = [x & 63 for x in b[:4]] + [b[8 + i] & 15 | b[i] >> 6 << 4 for i in range(4)]
        minima = [x & 63 for x in b[4:8]] + [b[8 + i] >> 4 | b[4 + i] >> 6 << 4 for i in range(4)]
        return scales, minima

    def q4_k(self, at, n):
        out = []
        for p in range(at, at + n // 256 * 144, 144):
            d, m = struct.unpack_from('<ee', self.bytes, p)
            scales, minima = self.factors(p + 4)
            for s in range(8):
                q = self.bytes[p + 16 + s // 2 * 32:p + 48 + s // 2 * 32]
                out += [d * scales[s] * (x >> s % 2 * 4 & 15) - m * minima[s] for x in q]
        return out

    def q5_k(self, at, n):
        out = []
        for p in range(at, at + n // 256 * 176, 176):
            d, m = struct.unpack_from('<ee', self.bytes, p)
            scales, minima = self.factors(p + 4)
            high = self.bytes[p + 16:p + 48]
            for s in range(8):
                q = self.bytes[p + 48 + s // 2 * 32:p + 80 + s // 2 * 32]
                out += [d * scales[s] * (x >> s % 2 * 4 & 15 | (h >> s & 1) << 4) - m * minima[s]
                        for x, h in zip(q, high)]
        return out

    def q6_k(self, at, n):
        out = []
        for p in range(at, at + n // 256 * 210, 210):
            scales, d = struct.unpack_from('<16b', self.bytes, p + 192), struct.unpack_from('<e', self.bytes, p + 208)[0]
            for k in range(256):
                part, quarter, i = k // 128, k // 32 % 4, k % 32
                low = self.bytes[p + part * 64 + quarter % 2 * 32 + i] >> quarter // 2 * 4 & 15
                high = self.bytes[p + 128 + part * 32 + i] >> quarter * 2 & 3
                out.append(d * scales[k // 16] * ((low | high << 4) - 32))
        return out


def int8(x):
    """Every 32 values as int8 times a scale, nearest even: what an engine of int8 products makes of its inputs."""
    out = []
    for i in range(0, len(x), 32):
        block = x[i:i + 32]
        d = max(map(abs, block)) / 127.0
        out += [round(v / d) * d if d else 0.0 for v in block]
    return out


def norm(x, w, eps):
    r = 1.0 / math.sqrt(sum(map(mul, x, x)) / len(x) + eps)
    return [a * r * b for a, b in zip(x, w)]


class Llama:
    """One sequence: step(token) gives the logits after it. inputs is applied to the input of every product
    with quantised weights."""

    def __init__(self, g, inputs=lambda x: x):
        self.t, k, self.inputs, self.floats = g.tensors, g.kv, inputs, g.floats
        self.n_layers = k['llama.block_count']
        self.n_heads = k['llama.attention.head_count']
        self.n_kv = k['llama.attention.head_count_kv']
        self.head_dim = k.get('llama.attention.key_length', k['llama.embedding_length'] // self.n_heads)
        self.eps = k['llama.attention.layer_norm_rms_epsilon']
        n = k.get('llama.rope.dimension_count', self.head_dim)
        self.inv_freq = [k['llama.rope.freq_base'] ** (-2.0 * i / n) for i in range(n // 2)]
        self.reset()

    def reset(self):
        self.keys = [[[] for _ in range(self.n_kv)] for _ in range(self.n_layers)]
        self.values = [[[] for _ in range(self.n_kv)] for _ in range(self.n_layers)]
        self.pos = 0

    def heads(self, v, turn):
        out = [v[i:i + self.head_dim] for i in range(0, len(v), self.head_dim)]
        for h in out if turn else []:
            for i, f in enumerate(self.inv_freq):
                c, s = math.cos(self.pos * f), math.sin(self.pos * f)
                a, b = h[2 * i], h[2 * i + 1]
                h[2 * i], h[2 * i + 1] = a * c - b * s, a * s + b * c
        return out

    def attention(self, layer, q):
        out = []
        for h, query in enumerate(q):
            kv = h * self.n_kv // self.n_heads
            scores = [sum(map(mul, query, key)) / math.sqrt(self.head_dim) for key in self.keys[layer][kv]]
            top = max(scores)
            weights = [math.exp(s - top) for s in scores]
            total = sum(weights)
            out += [sum(map(mul, weights, column)) / total for column in zip(*self.values[layer][kv])]
        return out

    def product(self, name, x):
        if name not in self.floats:
            x = self.inputs(x)
        return [sum(map(mul, row, x)) for row in self.t[name]]

    def step(self, token):
        x = self.t['token_embd.weight'][token]
        for i in range(self.n_layers):
            layer = lambda name, v: self.product('blk.%d.%s.weight' % (i, name), v)
            weights = lambda name: self.t['blk.%d.%s.weight' % (i, name)][0]
            h = norm(x, weights('attn_norm'), self.eps)
            for kv, key in enumerate(self.heads(layer('attn_k', h), True)):
                self.keys[i][kv].append(key)
            for kv, value in enumerate(self.heads(layer('attn_v', h), False)):
                self.values[i][kv].append(value)
            a = self.attention(i, self.heads(layer('attn_q', h), True))
            x = [p + q for p, q in zip(x, layer('attn_output', a))]
            h = norm(x, weights('ffn_norm'), self.eps)
            f = [g / (1.0 + math.exp(-g)) * u for g, u in zip(layer('ffn_gate', h), layer('ffn_up', h))]
            x = [p + q for p, q in zip(x, layer('ffn_down', f))]
        self.pos += 1
        head = 'output.weight' if 'output.weight' in self.t else 'token_embd.weight'
        return self.product(head, norm(x, self.t['output_norm.weight'][0], self.eps))


def golden(model, ids):
    """Logits of every position of ids, and the greedy continuation with the gap to the second best."""
    model.reset()
    logits = [model.step(i) for i in ids]
    greedy, margins, last = [], [], logits[-1]
    for n in range(N_GREEDY):
        second, best = sorted(last)[-2:]
        greedy.append(last.index(best))
        margins.append(round(best - second, 6))
        if n + 1 < N_GREEDY:
            last = model.step(greedy[-1])
    return logits, greedy, margins


def write(path, logits):
    flat = array.array('f', [x for row in logits for x in row])
    if sys.byteorder != 'little':
        flat.byteswap()
    with open(path, 'wb') as f:
        flat.tofile(f)


def main(folder):
    path = os.path.join(folder, 'golden.json')
    with open(path) as f:
        prompts = [p['ids'] for p in json.load(f)['prompts']]
    gguf = Gguf(os.path.join(folder, 'model.gguf'))
    model, rounded, out = Llama(gguf), Llama(gguf, int8), []
    for ids in prompts:
        logits, greedy, margins = golden(model, ids)
        name = 'p%d.logits' % len(ids)
        write(os.path.join(folder, name), logits)
        out.append({'ids': ids, 'logits': name, 'greedy': greedy, 'margins': margins})
        if gguf.quantised and len(ids) <= INT8_MAX:
            out[-1]['int8'] = 'p%d.int8.logits' % len(ids)
            rounded.reset()
            write(os.path.join(folder, out[-1]['int8']), [rounded.step(i) for i in ids])
    with open(path, 'w') as f:
        f.write('{"prompts": [\n' + ',\n'.join(json.dumps(p) for p in out) + '\n]}\n')


if __name__ == '__main__':
    for d in sys.argv[1:]:
        main(d)
