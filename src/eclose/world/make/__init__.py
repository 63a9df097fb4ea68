"""Instances, solutions and exact families, made from a seed."""
