"""Changes of the broker's topics by operators: the service, and a writer for each topic source that can be written."""
