"""The workbench: `linkspan dev TARGET` keeps a server connected, and shows it in a browser.

The Python process speaks MCP, the browser only shows. It can fill in arguments, answer questions and ask for a restart; it can
never name a command, a file or a URL: the target is what the command line says.

    serving.py  HTTP on the loopback interface   ->  bench.py  the clients of one target, one for each revision
    assets/     the page                             exchanges.py, questions.py, events.py, history.py  what it remembers
                                                     listing.py, code.py  pure: what a server offers, a call as code
"""

__all__: list[str] = []
