"""Everything that touches a server; the only user of aiohttp."""
