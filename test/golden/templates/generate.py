#!/usr/bin/env python3
"""Write golden.jsonl: what Jinja makes of every template here with every case of cases.json.

Needs python3-jinja2 (3.1). The environment has the settings that Hugging Face's transformers
documents for chat templates: sandboxed, trim_blocks, lstrip_blocks, break and continue, a plain
tojson, raise_exception and strftime_now (here with a fixed clock).

The templates were written for this project after the prompt formats that the models publish;
jinja-features.jinja is no model's, it exercises the language.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 11, 29, 14, 53, 55)


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime)
    return env


def main():
    env = environment()
    templates = json.loads((HERE / "templates.json").read_text())
    cases = json.loads((HERE / "cases.json").read_text())
    with open(HERE / "golden.jsonl", "w") as out:
        for name, model in sorted(templates.items()):
            template = env.from_string((HERE / model["file"]).read_text())
            tokens = {"bos_token": model["bos_token"], "eos_token": model["eos_token"]}
            for case, given in cases.items():
                line = {"template": name, "case": case, "now": NOW.isoformat(), **tokens}
                variables = {k: given[k] for k in ("messages", "tools", "add_generation_prompt")}
                try:
                    line["text"] = template.render(
                        **variables, documents=None, **tokens, **given["kwargs"]
                    )
                except Exception as e:  # which one is part of the reference
                    line["error"] = f"{type(e).__name__}: {e}"
                out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
