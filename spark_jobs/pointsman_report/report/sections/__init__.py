"""A module for each section of a report: what it holds, how it is read from the tables, its heading and its plots."""
