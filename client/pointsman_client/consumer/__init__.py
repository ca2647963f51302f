"""Consumer groups. The public classes are in ``push_consumer.py`` and ``pull_consumer.py``."""
