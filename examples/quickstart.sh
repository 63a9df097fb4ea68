#!/bin/sh
# The README's commands, in the folder you are in.
set -eu
eclosure data example
eclosure data stats example-instances.jsonl
eclosure metrics example-verdicts.jsonl --by model
eclosure data validate example-instances.jsonl
