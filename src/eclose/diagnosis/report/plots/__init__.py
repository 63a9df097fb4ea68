"""Plots of a report: the layout of their marks, and figures for print."""
