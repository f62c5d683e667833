#!/usr/bin/env python3
"""refused.py ENGINE: every malformed model file is refused within a second by an error that names its key or tensor.

gguf_bad.py writes the files; ok.gguf must load and generate. Files whose fault is in the chat template load, and fail at
the first prompt with the template's line."""
import os
import re
import subprocess
import sys
import tempfile
import time

engine = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))

EXPECTED = {
    'F05': r'tensor 1 of 1 has an empty name', 'F06': r'tensor "t"', 'F07': r'tensor "t"', 'F08': r'tensor "t"',
    'F09': r'tensor "t"', 'F10': r'tensor "t": unknown type 9999', 'F10b': r'tensor "t": unknown type 4294967295',
    'F16': r'header declares 1 key-values', 'F17': r'header declares 1 key-values', 'F18': r'key "k"', 'F19': r'key "k"',
    'F20': r'key "k"', 'F21': r'header declares 9223372036854775807 key-values',
    'F22': r'header declares 4611686018427387904 tensors', 'F23': r'header declares 18446744073709551615 key-values',
    'F24': r'key 21 of 21 has an empty name', 'F25': r'key "llama.block_count" occurs twice',
    'F26': r'tensor "output_norm.weight" occurs twice', 'F27': r'key "a\\x00b\\xff"', 'F28': r'GGUF version 0',
    'F28b': r'GGUF version 4', 'F28c': r'big-endian', 'F28d': r'GGUF version 1', 'F35': r'vocabulary has no token for byte 0x',
    'F36': r'tokenizer.ggml.eos_token_id.*4294967295', 'F37': r'tokenizer.ggml.bos_token_id.*292',
    'F38': r'tokenizer.ggml.tokens', 'F39': r'tokenizer.ggml.tokens.*1048576', 'F40': r'token_embd.weight',
    'F46': r'general.alignment.*0', 'F47': r'general.alignment.*3', 'F47b': r'general.alignment.*1073741824',
    'F47c': r'general.alignment', 'F48': r'llama.attention.head_count" is 0', 'F49': r'llama.attention.head_count_kv" is 0',
    'F50': r'llama.attention.head_count" is 7', 'F51': r'llama.block_count" is 0', 'F51b': r'llama.block_count" is 513',
    'F51c': r'llama.block_count" is 2147483648', 'F52': r'llama.block_count', 'F53': r'llama.context_length" is 0',
    'F53b': r'llama.context_length" is 4294967295', 'F54': r'llama.rope.dimension_count" is 4096',
    'F55': r'llama.rope.freq_base" is 0', 'F55b': r'llama.rope.freq_base" is nan',
    'F56': r'llama.attention.layer_norm_rms_epsilon" is nan', 'F57': r'blk.0.ffn_up.weight.*Q4_K',
    'F65': r'line 1.*__class__', 'F66': r'line 1', 'F67': r'line 1', 'F68': r'line 1', 'F69': r'\bno\b.*line 1',
    'F70': r'line 1.*nosuchfilter',
}
LOADS = {'F35', 'F66', 'F67', 'F69', 'F70'}  # the fault shows at the first prompt


def run(path):
    start = time.monotonic()
    done = subprocess.run([engine, 'run', '--model', path, '--prompt', 'hi', '--max-tokens', '3', '--temperature', '0'],
                          capture_output=True, timeout=20)
    return done, time.monotonic() - start


def check(name, path):
    """What is wrong with the engine's answer to this file; '' when nothing is."""
    done, seconds = run(path)
    text = ' '.join(done.stderr.decode(errors='replace').split())
    if name == 'ok':
        return '' if done.returncode == 0 and ', 3 tokens' in text else f'status {done.returncode}: {text}'
    if done.returncode != 1:
        return f'status {done.returncode}: {text}'
    if not re.search(EXPECTED[name], text):
        return f'does not name the fault: {text}'
    if ('million parameters' in text) != (name in LOADS):
        return f'{"was refused at load" if name in LOADS else "was loaded"}: {text}'
    return '' if seconds < 1 else f'took {seconds:.1f} s'


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, os.path.join(here, 'gguf_bad.py'), folder], check=True, stdout=subprocess.DEVNULL)
    names = sorted(n[:-5] for n in os.listdir(folder))
    assert set(names) == set(EXPECTED) | {'ok'}, set(names) ^ (set(EXPECTED) | {'ok'})
    bad = 0
    for name in names:
        wrong = check(name, os.path.join(folder, name + '.gguf'))
        if wrong:
            bad += 1
            print(f'{name}: {wrong}')
print(f'{len(names) - bad}/{len(names)} files behave')
sys.exit(1 if bad else 0)
