"""Values of the domain: questions, responses, judgments, verdicts, families."""
