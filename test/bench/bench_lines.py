#!/usr/bin/env python3
"""bench_lines.py - the measurements of a bench as JSON lines in a file, where a part that is measured again replaces itself.

usage: bench_lines.py forget RESULTS.jsonl PART FILE

Each line says which part of the bench it belongs to, and most of them the model file. Lines are appended as they come, so
that those of a run that ends early stay.
"""
import json
import os
import sys


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding='utf-8') as f:
        return [json.loads(line) for line in f if line.endswith('}\n')]


class Lines:
    def __init__(self, path):
        self.path = path
        self.lines = read(path)

    def forget(self, part, file=None):
        """Remove what an earlier run measured; with a file, of that file alone."""
        self.lines = [line for line in self.lines if line['part'] != part or file not in (None, line.get('file'))]
        with open(self.path + '.part', 'w', encoding='utf-8') as f:
            f.writelines(json.dumps(line) + '\n' for line in self.lines)
        os.replace(self.path + '.part', self.path)

    def note(self, part, what, **more):
        line = {'part': part, 'what': what, **more}
        self.lines.append(line)
        with open(self.path, 'a', encoding='utf-8') as f:
            f.write(json.dumps(line) + '\n')


if __name__ == '__main__':
    if len(sys.argv) != 5 or sys.argv[1] != 'forget':
        sys.exit(__doc__)
    Lines(sys.argv[2]).forget(sys.argv[3], sys.argv[4])
