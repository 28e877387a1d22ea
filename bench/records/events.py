"""Names of the events in a journal: part of the file format, so none of them ever changes its meaning."""

from __future__ import annotations

SESSION = "session"
"""Opens every session of a run: the first, and each resume. Its data: the `facts` of every route."""
FORCED = "forced"
"""A session goes on by --force although something is not what the run recorded; the message says what was and
what is: `route` (null: all of them), `what`, `was`, `now`. What was sent before is relied upon no more."""
STARTED = "started"
"""Stands before every exchange, so that a cut-off one is known: `trial`, `attempt`, `purpose`."""
FINISHED = "finished"
"""The end of a session, with its account of time."""
TOKENIZED = "tokenized"
"""One timing of a server's /tokenize: `route`, `tier`, `tokens`, `seconds`."""
RESET = "reset"
"""How a reset of the prefix cache went: `route`, `accepted`, `proven`; the message says why not."""

SERVER_STARTED = "server-started"
"""A server of ours is up: `route`. Nothing is in its cache yet."""
SERVER_STOPPED = "server-stopped"
"""A server of ours was stopped: `route`."""
SERVER_FELL = "server-fell"
"""A server of ours has ended by itself: `route`, and the attempt it cut off, if any."""
SERVER_AWAY = "server-away"
"""A server is waited for, after the failure that the message tells: `route`, and the `problem` at the
first look."""
SERVER_BACK = "server-back"
"""A server was away, or has restarted, and answers again: `route`, `waited_s`. It may be a new process,
so nothing in its cache is relied upon."""
NOT_IDLE = "not-idle"
"""A request was not sent, since the server did not become idle: `route`."""
ROUTE_LOST = "route-lost"
"""A route is given up for a session; the message says why."""
TRIAL_LEFT = "trial-left"
"""A trial is left for another session, and why: `route`, `trial`."""

WATCHED = "watched"
"""One request, window or restart that was watched."""
WATCH_ENDED = "watch ended"
"""The last event of a watch."""
NOTED = "note"
"""A line about the watching itself."""

REPEATED = "repeated line"
"""What readers get in place of an exchange whose very line came before; in no file."""
