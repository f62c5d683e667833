#!/usr/bin/env python3
"""Write golden.jsonl beside each tokenizer.json again, from its own texts, with the reference.

Needs the Python package tokenizers (the committed files come from 0.23.3):
    test/golden/tok/regenerate.py [FOLDER...]
"""
import json
import os
import sys

import tokenizers


def line(special, plain, text):
    ids = special.encode(text, add_special_tokens=False).ids
    return {
        "text": text,
        "hex": text.encode().hex(),
        "ids": ids,
        "ids_bos": special.encode(text).ids,
        "ids_plain": plain.encode(text, add_special_tokens=False).ids,
        "decoded": special.decode(ids, skip_special_tokens=False),
        "decoded_skip": special.decode(ids, skip_special_tokens=True),
    }


def main(folders):
    for folder in folders:
        path = os.path.join(folder, "tokenizer.json")
        special = tokenizers.Tokenizer.from_file(path)
        plain = tokenizers.Tokenizer.from_file(path)
        plain.encode_special_tokens = True  # special tokens are text like any other
        golden = os.path.join(folder, "golden.jsonl")
        with open(golden, encoding="utf-8") as f:
            texts = [json.loads(row)["text"] for row in f]
        with open(golden, "w", encoding="utf-8") as f:
            for text in texts:
                f.write(json.dumps(line(special, plain, text)) + "\n")


here = os.path.dirname(os.path.abspath(__file__))
main(sys.argv[1:] or [os.path.join(here, d) for d in ("bpe512-llama3", "bpe1000-gpt2")])
