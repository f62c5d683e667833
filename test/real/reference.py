"""reference.py - logits of a llama model from the dequantised weights of its GGUF file, in float32 with numpy.

Textbook code that shares nothing with the engine: whole sequences at once, no cache, activations never rounded. The golden
models' generator does the same in double precision for one token at a time, and has the reader of GGUF files that is used here.
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'golden', 'models'))
sys.dont_write_bytecode = True
from make_golden import Gguf  # noqa: E402


def half(b):
    """The two bytes of each row as a column of floats."""
    return np.ascontiguousarray(b).view('<f2').astype(np.float32)


def nibbles(b):
    """Low then high halves of the bytes of each row."""
    return np.concatenate([b & 15, b >> 4], axis=1)


def fifth_bit(b):
    """Bit k of the four bytes of each row, as 16 in column k."""
    return np.unpackbits(b, axis=1, bitorder='little') << 4


def q8_0(b):
    return half(b[:, :2]) * b[:, 2:].view(np.int8)


def q4_0(b):
    return half(b[:, :2]) * (nibbles(b[:, 2:]).astype(np.int8) - 8)


def q4_1(b):
    return half(b[:, :2]) * nibbles(b[:, 4:]) + half(b[:, 2:4])


def q5_0(b):
    return half(b[:, :2]) * ((nibbles(b[:, 6:]) | fifth_bit(b[:, 2:6])).astype(np.int8) - 16)


def q5_1(b):
    return half(b[:, :2]) * (nibbles(b[:, 8:]) | fifth_bit(b[:, 4:8])) + half(b[:, 2:4])


def k_scales(b):
    """6-bit scales and minima [n, 8] out of 12 bytes."""
    low, mid, high = b[:, :4], b[:, 4:8], b[:, 8:]
    return (np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1),
            np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], axis=1))


def k_values(b, q):
    """Q4_K and Q5_K: 8 sub-blocks of 32 values q with scales and minima of their own."""
    scale, low = k_scales(b[:, 4:16])
    d, m = half(b[:, :2]) * scale, half(b[:, 2:4]) * low
    return (d[:, :, None] * q.reshape(-1, 8, 32) - m[:, :, None]).reshape(-1, 256)


def k_nibbles(b):
    """Of each 32 bytes the low halves, then the high ones."""
    b = b.reshape(-1, 4, 32)
    return np.concatenate([b & 15, b >> 4], axis=2).reshape(-1, 256)


def q4_k(b):
    return k_values(b, k_nibbles(b[:, 16:]))


def q5_k(b):
    high = np.unpackbits(b[:, 16:48], axis=1, bitorder='little').reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    return k_values(b, k_nibbles(b[:, 48:]) | high << 4)


def q6_k(b):
    low = b[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = (low | high << 4).astype(np.int8) - 32
    return ((half(b[:, 208:]) * b[:, 192:208].view(np.int8))[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


# GGUF's number of a type: bytes and values of a block, decoder of rows of blocks
TYPES = {0: (4, 1, lambda b: b.view('<f4')), 1: (2, 1, half),
         30: (2, 1, lambda b: (np.ascontiguousarray(b).view('<u2').astype(np.uint32) << 16).view(np.float32)),
         2: (18, 32, q4_0), 3: (20, 32, q4_1), 6: (22, 32, q5_0), 7: (24, 32, q5_1), 8: (34, 32, q8_0),
         12: (144, 256, q4_k), 13: (176, 256, q5_k), 14: (210, 256, q6_k)}


class Arrays(Gguf):
    """A GGUF file whose tensors are float32 arrays [rows, cols]."""

    def rows(self, dims, kind, at):
        nbytes, values, decode = TYPES[kind]
        n = int(np.prod(dims)) // values * nbytes
        blocks = np.frombuffer(self.bytes, np.uint8, n, at).reshape(-1, nbytes)
        return np.asarray(decode(blocks), np.float32).reshape(-1, dims[0])


class Reference:
    def __init__(self, path):
        g = Arrays(path)
        k = g.kv
        self.t = g.tensors
        self.n_layers = k['llama.block_count']
        self.n_heads = k['llama.attention.head_count']
        self.n_kv = k['llama.attention.head_count_kv']
        self.head_dim = k.get('llama.attention.key_length', k['llama.embedding_length'] // self.n_heads)
        self.eps = k['llama.attention.layer_norm_rms_epsilon']
        n = k.get('llama.rope.dimension_count', self.head_dim)
        self.inv_freq = k.get('llama.rope.freq_base', 10000.0) ** (-2.0 * np.arange(n // 2) / n)

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True, dtype=np.float64) + self.eps).astype(np.float32) * w

    def heads(self, x, turn):
        """[n, heads * head_dim] as [heads, n, head_dim], pairs of values turned by their position."""
        h = x.reshape(len(x), -1, self.head_dim).transpose(1, 0, 2).copy()
        if turn:
            angle = np.arange(len(x))[:, None] * self.inv_freq
            c, s = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
            a, b = h[:, :, 0:2 * c.shape[1]:2].copy(), h[:, :, 1:2 * c.shape[1]:2].copy()
            h[:, :, 0:2 * c.shape[1]:2], h[:, :, 1:2 * c.shape[1]:2] = a * c - b * s, a * s + b * c
        return h

    def attention(self, q, k, v):
        out = []
        later = np.triu(np.ones((q.shape[1],) * 2, bool), 1)
        for i, query in enumerate(q):
            kv = i * self.n_kv // self.n_heads
            scores = query @ k[kv].T / np.float32(self.head_dim ** 0.5)
            scores[later] = -np.inf
            w = np.exp(scores - scores.max(axis=1, keepdims=True))
            out.append(w @ v[kv] / w.sum(axis=1, keepdims=True))
        return np.concatenate(out, axis=1)

    def logits(self, ids):
        """[len(ids), vocabulary] after every token of ids."""
        x = self.t['token_embd.weight'][ids]
        for i in range(self.n_layers):
            w = lambda name: self.t['blk.%d.%s.weight' % (i, name)]
            h = self.norm(x, w('attn_norm'))
            q, k = self.heads(h @ w('attn_q').T, True), self.heads(h @ w('attn_k').T, True)
            x = x + self.attention(q, k, self.heads(h @ w('attn_v').T, False)) @ w('attn_output').T
            h = self.norm(x, w('ffn_norm'))
            gate = h @ w('ffn_gate').T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w('ffn_up').T)) @ w('ffn_down').T
        head = self.t.get('output.weight', self.t['token_embd.weight'])
        return self.norm(x, self.t['output_norm.weight']) @ head.T
