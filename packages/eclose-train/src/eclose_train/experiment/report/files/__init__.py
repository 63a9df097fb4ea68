"""The files in which the report of a study is written."""
