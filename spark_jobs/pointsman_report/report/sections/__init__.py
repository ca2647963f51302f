"""A module for each section of a report: its data, how they are read from the tables, its heading and its plots."""
