"""The report of a watch: what somebody else's requests cost, as far as a server's own pages tell."""
