"""People label responses, questions and families, and see no more than each decision may rest on."""
