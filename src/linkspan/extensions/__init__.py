"""Extensions of the protocol: each is loaded when a server or a client asks for it."""
