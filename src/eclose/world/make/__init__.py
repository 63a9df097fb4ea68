"""Making of instances, solutions and exact families from a seed."""
