"""Servers of the suite's own: started, tended, listened to and stopped."""
