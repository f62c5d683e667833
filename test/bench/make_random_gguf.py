#!/usr/bin/env python3
"""make_random_gguf.py - a model of 1.1B parameters with random weights of one type, for measuring speed.

usage: make_random_gguf.py VOCABULARY.gguf OUT.gguf q4_0|q8_0|q4_k

The shape is that of a Llama with 22 layers, 2,048 wide, 32 heads over 4 of keys and values. The first 32,000 tokens
of the vocabulary's file become its own, with the merges that stay inside them, so that every engine which reads that
file reads this one. The same arguments give the same bytes.
"""
import os
import random
import struct
import sys

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 22, 2048, 5632, 32, 4, 32000, 8192
KV_WIDTH = WIDTH // HEADS * KV_HEADS
ALIGNMENT = 32
F32 = 0
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9  # types of GGUF's values
SCALARS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', UINT32: 'I', 5: 'i', FLOAT32: 'f', BOOL: '?', 10: 'Q', 11: 'q', 12: 'd'}


class Reader:
    """The key and value pairs of a GGUF file."""

    def __init__(self, path):
        with open(path, 'rb') as self.file:
            if self.file.read(4) != b'GGUF' or self.scalar('I') != 3:
                raise SystemExit(f'{path} is no GGUF file of version 3')
            self.scalar('Q')
            self.values = {}
            for _ in range(self.scalar('Q')):
                key = self.string().decode()
                self.values[key] = self.value(self.scalar('I'))

    def scalar(self, kind):
        return struct.unpack('<' + kind, self.file.read(struct.calcsize('<' + kind)))[0]

    def string(self):
        return self.file.read(self.scalar('Q'))

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind = self.scalar('I')
            return [self.value(kind) for _ in range(self.scalar('Q'))]
        return self.scalar(SCALARS[kind])


def string(s):
    return struct.pack('<Q', len(s)) + s


def pair(key, kind, value):
    head = string(key.encode()) + struct.pack('<I', kind)
    if kind == STRING:
        return head + string(value)
    return head + struct.pack('<' + SCALARS[kind], value)


def array(key, kind, values):
    body = b''.join(string(v) if kind == STRING else struct.pack('<' + SCALARS[kind], v) for v in values)
    return string(key.encode()) + struct.pack('<IIQ', ARRAY, kind, len(values)) + body


def vocabulary(path):
    """The pairs of the tokenizer."""
    source = Reader(path).values
    tokens = source['tokenizer.ggml.tokens'][:VOCABULARY]
    known = set(tokens)
    merges = [m for m in source['tokenizer.ggml.merges'] if m.replace(b' ', b'', 1) in known]
    pairs = [array('tokenizer.ggml.tokens', STRING, tokens), array('tokenizer.ggml.merges', STRING, merges),
             array('tokenizer.ggml.token_type', 5, source['tokenizer.ggml.token_type'][:VOCABULARY])]
    for key in 'model', 'pre':
        pairs.append(pair('tokenizer.ggml.' + key, STRING, source['tokenizer.ggml.' + key]))
    for key in 'bos_token_id', 'eos_token_id':
        pairs.append(pair('tokenizer.ggml.' + key, UINT32, source['tokenizer.ggml.' + key]))
    pairs.append(pair('tokenizer.ggml.add_bos_token', BOOL, False))
    pairs.append(pair('tokenizer.chat_template', STRING, source['tokenizer.chat_template']))
    return pairs


def hyperparameters(file_type):
    pairs = [pair('general.architecture', STRING, b'llama'), pair('general.name', STRING, b'random 1.1B')]
    for key, value in (('general.file_type', file_type), ('general.quantization_version', 2),
                       ('llama.block_count', LAYERS), ('llama.context_length', CONTEXT),
                       ('llama.embedding_length', WIDTH), ('llama.feed_forward_length', INNER),
                       ('llama.attention.head_count', HEADS), ('llama.attention.head_count_kv', KV_HEADS),
                       ('llama.rope.dimension_count', WIDTH // HEADS), ('llama.vocab_size', VOCABULARY)):
        pairs.append(pair(key, UINT32, value))
    pairs.append(pair('llama.attention.layer_norm_rms_epsilon', FLOAT32, 1e-5))
    pairs.append(pair('llama.rope.freq_base', FLOAT32, 10000.0))
    return pairs


class Kind:
    """A type of weights: blocks of random bytes in which the scales are set, so that the mean is 0."""

    def __init__(self, number, file_type, weights, nbytes, halves, table=None):
        self.number, self.file_type, self.weights, self.nbytes = number, file_type, weights, nbytes
        self.halves = halves  # half floats at the block's begin, for weights of standard deviation 1
        self.table = table  # what becomes of each random byte

    def data(self, rng, n, deviation):
        blocks = n // self.weights
        data = bytearray(rng.randbytes(blocks * self.nbytes))
        if self.table:
            data = data.translate(self.table)
        for i, half in enumerate(self.halves):
            for k, byte in enumerate(struct.pack('<e', half * deviation)):
                data[2 * i + k::self.nbytes] = bytes([byte]) * blocks
        return data


# No -8 and no -128, which nothing outweighs. Then 4 bits less 8 deviate by 4.18 and 8 bits by 73.5; a 6-bit scale times
# 4 bits, less 7.5 times a 6-bit minimum, deviates by 258.
NO_8 = bytes((b if b >> 4 else b | 0x80) if b & 15 else (b if b >> 4 else 0x80) | 8 for b in range(256))
NO_128 = bytes(0 if b == 128 else b for b in range(256))
KINDS = {'q4_0': Kind(2, 2, 32, 18, [1 / 4.18], NO_8), 'q8_0': Kind(8, 7, 32, 34, [1 / 73.5], NO_128),
         'q4_k': Kind(12, 14, 256, 144, [1 / 258, 7.5 / 258])}


def tensors():
    """Name, columns (the inner dimension), rows (0 = a vector of ones) and deviation of each."""
    yield 'token_embd.weight', WIDTH, VOCABULARY, 1.0
    for i in range(LAYERS):
        for name, columns, rows in (('attn_norm', WIDTH, 0), ('attn_q', WIDTH, WIDTH), ('attn_k', WIDTH, KV_WIDTH),
                                    ('attn_v', WIDTH, KV_WIDTH), ('attn_output', WIDTH, WIDTH), ('ffn_norm', WIDTH, 0),
                                    ('ffn_gate', WIDTH, INNER), ('ffn_up', WIDTH, INNER), ('ffn_down', INNER, WIDTH)):
            yield f'blk.{i}.{name}.weight', columns, rows, 0.02
    yield 'output_norm.weight', WIDTH, 0, 1.0
    yield 'output.weight', WIDTH, VOCABULARY, 0.1  # logits that deviate by 4.5: the likeliest token stands out


def main():
    source, out, name = sys.argv[1:4]
    kind = KINDS[name]
    pairs = hyperparameters(kind.file_type) + vocabulary(source)
    infos, offset, n_tensors = [], 0, 0
    for tensor, columns, rows, _ in tensors():
        shape = [columns, rows] if rows else [columns]
        infos.append(string(tensor.encode()) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *shape,
                                                           kind.number if rows else F32, offset))
        nbytes = columns * rows // kind.weights * kind.nbytes if rows else 4 * columns
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
        n_tensors += 1
    rng = random.Random(1)
    with open(out + '.part', 'wb') as f:
        f.write(b'GGUF' + struct.pack('<IQQ', 3, n_tensors, len(pairs)) + b''.join(pairs) + b''.join(infos))
        for _, columns, rows, deviation in tensors():
            f.write(bytes(-f.tell() % ALIGNMENT))
            f.write(kind.data(rng, columns * rows, deviation) if rows else struct.pack('<f', 1.0) * columns)
        f.write(bytes(-f.tell() % ALIGNMENT))
    os.rename(out + '.part', out)


if __name__ == '__main__':
    main()
