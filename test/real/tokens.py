#!/usr/bin/env python3
"""tokens.py ENGINE MODEL GOLDEN: token ids of plain text equal the reference's (control tokens are text there)."""
import json
import subprocess
import sys

engine, model, golden = sys.argv[1:4]
records = [json.loads(line) for line in open(golden)]
records = [r for r in records if '\0' not in r['text']]
request = ''.join(json.dumps({'prompt': r['text']}) + '\n' for r in records)
result = subprocess.run([engine, 'run', '--model', model, '--tokenize', '--jsonl', '/dev/stdin'], input=request,
                        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
answers = [json.loads(line) for line in result.stdout.splitlines()]
assert len(answers) == len(records), f'{len(answers)} answers for {len(records)} texts'
bad = 0
for r, a in zip(records, answers):
    if a['tokens'] != r['ids_plain']:
        bad += 1
        print(f"{r['text']!r}: {a['tokens']} instead of {r['ids_plain']}")
print(f'{len(records) - bad}/{len(records)} texts have identical ids')
sys.exit(1 if bad or not records else 0)
