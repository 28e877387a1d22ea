"""Tables, plots and pages from what analysis found.

`run_pass` reads a run once; `content` puts runs together with the statistics: all that anything here is made
of. Of it come tables (`grid`, `levels`, `chats`, `compared`, ...), sentences (`words`, `choice`, ...), what
these rest on (`sources`, `witness`), and plots (`plots`, `figures*`). Of these come the pages (`html`,
`markdown`), the terminal's table (`tables`) and files for machines (`export`, `parquet`); `write` writes all.

`second` is a process that helps with long journals, `watch` the report of what somebody else's requests cost.
"""
