"""From exchanges to decisions. Pure: no clock, no file, no socket."""
