"""How a group shares a topic's queues and reads them; its faces are ``push_consumer.py`` and ``pull_consumer.py``."""
