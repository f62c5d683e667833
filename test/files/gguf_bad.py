#!/usr/bin/env python3
"""gguf_bad.py OUTDIR [Fnn ...]: write one small valid GGUF model (ok.gguf, about 150 KB, random weights) and malformed ones.
Every file is for testing the loader: it must be refused with an error that names what is wrong (refused.py), never crash."""
import struct, sys, os, random
U8,I8,U16,I16,U32,I32,F32,BOOL,STR,ARR,U64,I64,F64 = range(13)
FMT = {U8:'<B',I8:'<b',U16:'<H',I16:'<h',U32:'<I',I32:'<i',F32:'<f',BOOL:'<B',U64:'<Q',I64:'<q',F64:'<d'}
M64 = (1 << 64) - 1
u32 = lambda v: struct.pack('<I', v & 0xFFFFFFFF)
u64 = lambda v: struct.pack('<Q', v & M64)
def s(b, n=None):
    b = b.encode() if isinstance(b, str) else b
    return u64(len(b) if n is None else n) + b
def val(t, v):
    if t == STR: return s(v)
    if t == ARR:
        et, xs = v
        return u32(et) + u64(len(xs)) + (b''.join(s(x) for x in xs) if et == STR else b''.join(struct.pack(FMT[et], x) for x in xs))
    if isinstance(v, bytes): return v
    return struct.pack(FMT[t], v)
kv = lambda k, t, v: s(k) + u32(t) + val(t, v)
ti = lambda name, ne, typ=0, off=0, nd=None: s(name) + u32(len(ne) if nd is None else nd) + b''.join(u64(x) for x in ne) + u32(typ) + u64(off)
head = lambda nt, nk, ver=3, magic=b'GGUF': magic + u32(ver) + u64(nt) + u64(nk)
E, FF, NB, H, HKV = 32, 64, 2, 2, 1
SPM = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % i for i in range(256)] + ['\u2581'] + [chr(c) for c in range(97, 123)] + ['\u2581t', 'he', '\u2581the', 'in', 'er', 'an']
def byte_chars():                                  # GPT-2's byte -> printable character map
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256)); m = {b: b for b in keep}; x = 256
    for b in range(256):
        if b not in m: m[b] = x; x += 1
    return [chr(m[b]) for b in range(256)]
BYTES = byte_chars(); SP = BYTES[32]
MERGES = [(SP, 't'), ('h', 'e'), (SP + 't', 'he'), ('i', 'n'), ('e', 'r'), ('a', 'n')] + [(SP, chr(c)) for c in range(97, 123) if chr(c) != 't'] + [('o', 'n'), ('r', 'e')]
TOK = BYTES + [a + b for a, b in MERGES] + ['<|end|>', '<|begin|>', '<|eot|>']   # byte-level BPE; same size as SPM
def base_kv():
    n = len(TOK)
    return {'general.architecture': (STR, 'llama'), 'general.name': (STR, 'tiny'), 'general.alignment': (U32, 32),
     'llama.block_count': (U32, NB), 'llama.context_length': (U32, 256), 'llama.embedding_length': (U32, E), 'llama.feed_forward_length': (U32, FF),
     'llama.attention.head_count': (U32, H), 'llama.attention.head_count_kv': (U32, HKV), 'llama.attention.layer_norm_rms_epsilon': (F32, 1e-5),
     'llama.rope.dimension_count': (U32, E // H), 'llama.rope.freq_base': (F32, 10000.0), 'llama.vocab_size': (U32, n),
     'tokenizer.ggml.model': (STR, 'gpt2'), 'tokenizer.ggml.pre': (STR, 'llama-bpe'), 'tokenizer.ggml.tokens': (ARR, (STR, TOK)),
     'tokenizer.ggml.merges': (ARR, (STR, [a + ' ' + b for a, b in MERGES])), 'tokenizer.ggml.token_type': (ARR, (I32, [1] * (n - 3) + [3] * 3)),
     'tokenizer.ggml.bos_token_id': (U32, n - 2), 'tokenizer.ggml.eos_token_id': (U32, n - 3)}
def spm_kv():                                      # the same model with a SentencePiece vocabulary
    k = base_kv(); del k['tokenizer.ggml.pre'], k['tokenizer.ggml.merges']
    k.update({'tokenizer.ggml.model': (STR, 'llama'), 'tokenizer.ggml.tokens': (ARR, (STR, SPM)), 'tokenizer.ggml.scores': (ARR, (F32, [-float(i) for i in range(len(SPM))])),
     'tokenizer.ggml.token_type': (ARR, (I32, [2, 3, 3] + [6] * 256 + [1] * (len(SPM) - 259))), 'tokenizer.ggml.bos_token_id': (U32, 1), 'tokenizer.ggml.eos_token_id': (U32, 2), 'tokenizer.ggml.unknown_token_id': (U32, 0)})
    return k
def base_t():
    n, hs = len(TOK), E // H
    L = [('token_embd.weight', [E, n])]
    for i in range(NB):
        b = 'blk.%d.' % i
        L += [(b + 'attn_norm.weight', [E]), (b + 'attn_q.weight', [E, E]), (b + 'attn_k.weight', [E, hs * HKV]), (b + 'attn_v.weight', [E, hs * HKV]),
              (b + 'attn_output.weight', [E, E]), (b + 'ffn_norm.weight', [E]), (b + 'ffn_gate.weight', [E, FF]), (b + 'ffn_up.weight', [E, FF]), (b + 'ffn_down.weight', [FF, E])]
    return L + [('output_norm.weight', [E]), ('output.weight', [E, n])]
def data(name, ne):
    r, n = random.Random(name), 1
    for x in ne: n *= x
    one = 'norm' in name
    return struct.pack('<%df' % n, *([1.0] * n if one else [r.gauss(0, .2) for _ in range(n)]))
def build(k=None, t=None, types=None, extra=b'', nextra=0, fake_ne=None):
    k, t, types, fake_ne = k or base_kv(), t or base_t(), types or {}, fake_ne or {}
    infos, blob, off = b'', b'', 0
    for name, ne in t:
        d = data(name, ne); infos += ti(name, fake_ne.get(name, ne), types.get(name, 0), off)
        d += b'\0' * (-len(d) % 32); blob += d; off += len(d)
    h = head(len(t), len(k) + nextra) + b''.join(kv(a, *v) for a, v in k.items()) + extra + infos
    return h + b'\0' * (-len(h) % 32) + blob
def w(key, *v):                                   # base model with one key replaced (or removed when no value)
    k = base_kv()
    if v: k[key] = v
    else: k.pop(key)
    return build(k)
def one(ne, typ=0, off=0, nd=None, pad=32): h = head(1, 0) + ti('t', ne, typ, off, nd); return h + b'\0' * (-len(h) % 32) + b'\0' * pad
def toks(f, spm=False): k = spm_kv() if spm else base_kv(); xs = list(SPM if spm else TOK); f(xs); k['tokenizer.ggml.tokens'] = (ARR, (STR, xs)); return build(k)
def tt(et, xs, key): k = spm_kv() if key == 'scores' else base_kv(); k['tokenizer.ggml.' + key] = (ARR, (et, xs)); return build(k)
n = len(TOK); OK = build()
def vocab2():
    k = base_kv(); k['tokenizer.ggml.tokens'] = (ARR, (STR, ['a', 'b'])); k['tokenizer.ggml.merges'] = (ARR, (STR, [])); k['tokenizer.ggml.token_type'] = (ARR, (I32, [1, 1])); k['llama.vocab_size'] = (U32, 2)
    for x in ('bos', 'eos'): k.pop('tokenizer.ggml.%s_token_id' % x)
    return build(k, [(a, [E, 2] if b[-1] == n else b) for a, b in base_t()])
def vocab0():
    k = base_kv(); k['tokenizer.ggml.tokens'] = (ARR, (STR, [])); k['tokenizer.ggml.merges'] = (ARR, (STR, [])); k['tokenizer.ggml.token_type'] = (ARR, (I32, [])); return build(k)
nest = lambda d: (u32(ARR) + u64(1)) * d + u32(U8) + u64(1) + b'\0'
tmpl = lambda x: w('tokenizer.chat_template', STR, x)
P = 'llama.'
F = {
    'F05': lambda: head(1, 0) + ti('', [1, 0]),
    'F06': lambda: one([-1]),
    'F07': lambda: one([(1 << 63) - 1, 2], 24),
    'F08': lambda: one([1] * 5),
    'F09': lambda: one([1], nd=0xFFFFFFFF),
    'F10': lambda: one([8], 9999),
    'F10b': lambda: one([8], 0xFFFFFFFF),
    'F16': lambda: head(0, 1) + s('k', 1 << 63),
    'F17': lambda: head(0, 1) + s('k', M64),
    'F18': lambda: head(0, 1) + s('k') + u32(STR) + s(b'x' * 16, 1 << 30),
    'F19': lambda: head(0, 1) + s('k') + u32(ARR) + u32(U8) + u64(1 << 63),
    'F20': lambda: head(0, 1) + s('k') + u32(ARR) + nest(10000),
    'F21': lambda: head(0, (1 << 63) - 1),
    'F22': lambda: head(1 << 62, 0),
    'F23': lambda: head(0, -1),
    'F24': lambda: build(extra=kv('', U8, 1), nextra=1),
    'F25': lambda: build(extra=kv('llama.block_count', U32, 7), nextra=1),
    'F26': lambda: build(t=base_t() + [('output_norm.weight', [E])]),
    'F27': lambda: build(extra=s(b'a\0b\xff') + u32(U8) + b'\1', nextra=1),
    'F28': lambda: OK[:4] + u32(0) + OK[8:],
    'F28b': lambda: OK[:4] + u32(4) + OK[8:],
    'F28c': lambda: OK[:4] + u32(0x03000000) + OK[8:],
    'F28d': lambda: OK[:4] + u32(1) + OK[8:],
    'F35': vocab2,
    'F36': lambda: w('tokenizer.ggml.eos_token_id', U32, 0xFFFFFFFF),
    'F37': lambda: w('tokenizer.ggml.bos_token_id', U32, n),
    'F38': vocab0,
    'F39': lambda: toks(lambda x: x.__setitem__(280, 'z' * (1 << 20))),
    'F40': lambda: build(t=[(a, [E, n - 10] if a == 'token_embd.weight' else b) for a, b in base_t()]),
    'F46': lambda: w('general.alignment', U32, 0),
    'F47': lambda: w('general.alignment', U32, 3),
    'F47b': lambda: w('general.alignment', U32, 1 << 30),
    'F47c': lambda: w('general.alignment', I32, 32),
    'F48': lambda: w(P + 'attention.head_count', U32, 0),
    'F49': lambda: w(P + 'attention.head_count_kv', U32, 0),
    'F50': lambda: w(P + 'attention.head_count', U32, 7),
    'F51': lambda: w(P + 'block_count', U32, 0),
    'F51b': lambda: w(P + 'block_count', U32, 513),
    'F51c': lambda: w(P + 'block_count', U32, 1 << 31),
    'F52': lambda: w(P + 'block_count', STR, '2'),
    'F53': lambda: w(P + 'context_length', U32, 0),
    'F53b': lambda: w(P + 'context_length', U32, 0xFFFFFFFF),
    'F54': lambda: w(P + 'rope.dimension_count', U32, 4096),
    'F55': lambda: w(P + 'rope.freq_base', F32, 0.0),
    'F55b': lambda: w(P + 'rope.freq_base', F32, float('nan')),
    'F56': lambda: w(P + 'attention.layer_norm_rms_epsilon', F32, float('nan')),
    'F57': lambda: build(types={'blk.0.ffn_up.weight': 12}),
    'F65': lambda: tmpl("{{ messages.__class__ }}{{ lipsum.__globals__ }}"),
    'F66': lambda: tmpl('{% for i in range(1000000000) %}x{% endfor %}'),
    'F67': lambda: tmpl('{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}'),
    'F68': lambda: tmpl('{% if true %}' * 10000 + 'x' + '{% endif %}' * 10000),
    'F69': lambda: tmpl("{{ raise_exception('no') }}"),
    'F70': lambda: tmpl('{{ messages | nosuchfilter }}'),
}
if __name__ == '__main__':
    out = sys.argv[1]; os.makedirs(out, exist_ok=True)
    open(os.path.join(out, 'ok.gguf'), 'wb').write(OK)
    for name in (sys.argv[2:] or F): open(os.path.join(out, name + '.gguf'), 'wb').write(F[name]())
    print(len(sys.argv[2:] or F), 'files')
