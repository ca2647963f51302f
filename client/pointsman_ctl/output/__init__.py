"""What commands show: tables, texts, JSON documents and errors, made from the responses of servers."""
