"""Judging by a model, criterion by criterion, and its validation against people."""
