"""Who may call what, and how much of it: certificates, tokens and roles, rates, and bounds that peers share."""
