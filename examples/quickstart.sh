#!/bin/sh
# Run the README's commands in the current folder.
set -eu
eclose demo
eclose gate demo --min-trr 0.3 --max-unjudged 0.05
eclose data example
eclose data stats example-instances.jsonl
eclose metrics example-verdicts.jsonl --by model
eclose data validate example-instances.jsonl
eclose world make --questions 200 --out world --failure answer_decoupling=0.1 --failure path_deviation=0.05
eclose world judge world/responses.jsonl
eclose metrics world/verdicts.jsonl
cmp world/planted.jsonl world/verdicts.jsonl
