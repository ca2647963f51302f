"""Options and arguments of commands, their completion, and the invocation that they give."""
