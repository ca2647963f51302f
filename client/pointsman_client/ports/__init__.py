"""What the client needs of its peers: protocols, and what they exchange. No peer is imported here."""
