"""The status page and JSON over HTTP: documents are built in the event loop and served by threads."""
