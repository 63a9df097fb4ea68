"""Labels of a judged run as columns, and the rates, comparisons and gates over them."""
