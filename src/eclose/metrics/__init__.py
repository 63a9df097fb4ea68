"""What the labels say: verdicts to rates, pairs of judgments to agreement."""
