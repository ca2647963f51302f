"""Which queue a message goes to, and what happens when that fails. ``producer.py`` is its face."""
