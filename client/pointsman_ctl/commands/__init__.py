"""The commands by subject: read arguments, ask, show. What is asked and how it looks stands in the modules above."""
