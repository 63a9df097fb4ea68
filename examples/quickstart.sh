#!/bin/sh
# The README's commands, in the folder you are in.
set -eu
eclosure demo
eclosure gate demo --min-trr 0.3 --max-unjudged 0.05
eclosure data example
eclosure data stats example-instances.jsonl
eclosure metrics example-verdicts.jsonl --by model
eclosure data validate example-instances.jsonl
eclosure world make --questions 200 --out world --failure answer_decoupling=0.1 --failure path_deviation=0.05
eclosure world judge world/responses.jsonl
eclosure metrics world/verdicts.jsonl
cmp world/planted.jsonl world/verdicts.jsonl
