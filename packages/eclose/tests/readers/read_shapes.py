"""Print a prediction a line for a corpus of responses, as its scoring script reads them.

    python packages/eclose/tests/readers/read_shapes.py CORPUS.jsonl > predictions.jsonl

A case has ``id``, ``input`` and ``question``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from eclose.errors import UserError
from eclose.reading.response import read_response


def predict(case: dict[str, Any]) -> dict[str, Any]:
    """Return the prediction of one case."""
    try:
        reading = read_response(case["input"], case["question"])
    except UserError as error:
        return {"id": case["id"], "status": "refused", "steps": [], "answer": None, "note": str(error)}
    return {
        "id": case["id"],
        "status": reading.status.value,
        "trace": reading.trace,
        "steps": list(reading.steps),
        "answer": reading.answer,
        "located": reading.located,
        "note": reading.rule,
    }


def main() -> None:
    """Print the predictions of the file that is named first."""
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        if line.strip():
            sys.stdout.write(json.dumps(predict(json.loads(line)), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
